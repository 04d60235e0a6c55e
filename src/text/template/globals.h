// The names every template knows without being given them.
#pragma once

#include "text/template/function.h"

namespace millrace::jinja {

// range, dict, namespace, cycler, joiner, raise_exception, strftime_now; missing for any other name.
Value find_global(Run& run, std::string_view name);

}  // namespace millrace::jinja
