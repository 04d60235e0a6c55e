// Gives every variable of a parsed template its place, by the rules Jinja's compiler follows: which assignments are
// seen where, what a loop or a macro shadows, and what a name means before it is set are decided here, once, and not
// while rendering. Also looks up filters and tests by name.
#pragma once

#include "base/result.h"
#include "text/template/ast.h"

namespace millrace::jinja {

Result<void> resolve(Program& program);

}  // namespace millrace::jinja
