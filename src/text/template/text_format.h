// Python's str.format and str.format_map, with attributes and items looked up as the sandbox does.
#pragma once

#include "text/template/function.h"

namespace millrace::jinja {

// `keywords` may be a dict (format_map) or missing.
Result<Value> text_format(Run& run, const Value& format, const Arguments& arguments, const Value& keywords);

}  // namespace millrace::jinja
