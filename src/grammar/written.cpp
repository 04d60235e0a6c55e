#include "grammar/written.h"

#include "grammar/numbers.h"

namespace millrace::grammar {
namespace {

void write(const Json& value, std::string& out) {
  if (value.is_number()) {
    const auto decimal = to_decimal(value);
    out += decimal ? to_text(*decimal) : millrace::to_text(value);
  } else if (const auto* array = value.if_array()) {
    out += "[";
    for (size_t i = 0; i < array->size(); ++i) {
      if (i > 0) out += ", ";
      write((*array)[i], out);
    }
    out += "]";
  } else if (const auto* object = value.if_object()) {
    out += "{";
    bool first = true;
    for (const auto& member : *object) {
      if (!first) out += ", ";
      first = false;
      out += millrace::to_text(Json(member.key())) + ": ";
      write(member.value(), out);
    }
    out += "}";
  } else {
    out += millrace::to_text(value);
  }
}

}  // namespace

std::string written(const Json& value) {
  std::string out;
  write(value, out);
  return out;
}

}  // namespace millrace::grammar
