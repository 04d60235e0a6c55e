// Text formatting with the percent sign: `text % arguments`, as Python does it. A pure function of its arguments.
#pragma once

#include "text/template/run.h"

namespace millrace::jinja {

// `format` is a text. The result is markup if the format is; what goes into markup is escaped.
Result<Value> percent_format(Run& run, const Value& format, const Value& arguments);

}  // namespace millrace::jinja
