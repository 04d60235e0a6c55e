// FieldReader: the fields of a body that was checked against its table: types and ranges are right, so only absence is
// left to look at. Any thread; the body outlives it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace millrace {

class FieldReader {
 public:
  explicit FieldReader(const JsonObject& body) : body_(body) {}

  bool has(std::string_view name) const { return find(body_, name) != nullptr; }
  bool flag(std::string_view name, bool otherwise) const {
    const Json* value = find(body_, name);
    return value == nullptr ? otherwise : value->get_bool();
  }
  double number(std::string_view name, double otherwise) const {
    const Json* value = find(body_, name);
    return value == nullptr ? otherwise : value->to_number<double>();
  }
  int32_t integer(std::string_view name, int32_t otherwise) const {
    return static_cast<int32_t>(number(name, otherwise));
  }
  std::string text(std::string_view name) const {
    const Json* value = find(body_, name);
    return value == nullptr ? std::string() : std::string(value->get_string());
  }
  std::vector<std::string> texts(std::string_view name) const {
    const Json* value = find(body_, name);
    if (value == nullptr) return {};
    if (value->is_string()) return {std::string(value->get_string())};
    std::vector<std::string> list;
    for (const Json& one : value->get_array()) list.emplace_back(one.get_string());
    return list;
  }

 private:
  const JsonObject& body_;
};

}  // namespace millrace
