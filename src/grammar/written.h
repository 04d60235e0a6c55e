// JSON as clients write it: a space after comma and colon, as Python's json module does, and whole numbers without a
// point. How instances are led through grammars, by measurements and tests. Pure; any thread.
#pragma once

#include <string>

#include "base/json.h"

namespace millrace::grammar {

std::string written(const Json& value);

}  // namespace millrace::grammar
