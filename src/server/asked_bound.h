// What an answer must be, as clients of all interfaces say it: a schema as JSON or as the text of one, rules in GBNF or
// Lark, an expression, a choice. Only the form is looked at here; compiling says what is wrong inside. Pure; any
// thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/api_error.h"
#include "server/request_body.h"

namespace millrace {

// A field that binds the answer. A second one is refused with both names.
std::optional<ApiError> add_bound(RequestBody& out, GrammarSource source, std::string_view field);

GrammarSource schema_source(const Json& schema);          // an object, a boolean, or the text of either
GrammarSource rules_source(std::string_view rules);       // "::=" stands in GBNF and not in Lark
GrammarSource choice_source(const Json& texts);           // a list of texts
GrammarSource regex_source(std::string_view expression);  // for the whole answer

// What compiling said, with the field and, of a schema, the pointer to what is at fault in it.
ApiError bound_error(const AskedBound& bound, const Error& failure);

}  // namespace millrace
