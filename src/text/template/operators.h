// Python's operators on values: arithmetic, comparison, membership. Integers are 64 bits wide; a result that does not
// fit is an error.
#pragma once

#include "text/template/ast.h"
#include "text/template/run.h"

namespace millrace::jinja {

Result<Value> unary(Run& run, UnaryOperator op, const Value& operand);
Result<Value> binary(Run& run, BinaryOperator op, const Value& left, const Value& right);
Result<bool> compare(Run& run, Comparison op, const Value& left, const Value& right);
Result<bool> equal(Run& run, const Value& left, const Value& right);
Result<bool> less(Run& run, const Value& left, const Value& right);
Result<bool> contains(Run& run, const Value& container, const Value& item);

// The text of a value as `+` on Markup adds it: escaped unless it is markup itself.
Result<std::string> escaped(Run& run, const Value& value);

}  // namespace millrace::jinja
