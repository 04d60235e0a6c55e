// JSON as values of the template language.
#pragma once

#include "base/json.h"
#include "text/template/run.h"

namespace millrace::jinja {

Result<Value> from_json(Run& run, const Json& json);

}  // namespace millrace::jinja
