// Walks the names a piece of the tree mentions, in the order in which Jinja's own visitors meet them.
#pragma once

#include <functional>
#include <string_view>

#include "text/template/ast.h"

namespace millrace::jinja {

// Called with each name and whether it is read there (otherwise it is assigned or declared).
using NameVisitor = std::function<void(std::string_view name, bool is_read)>;

void visit_names(const Expression& expression, const NameVisitor& visitor);
void visit_names(const Body& body, const NameVisitor& visitor);

}  // namespace millrace::jinja
