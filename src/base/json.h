// JSON as the house uses it: Boost.JSON values (objects keep their order), parsed under limits, read through getters
// that return errors naming the key. Parsing never recurses deeper than max_depth.
#pragma once

#include <boost/json/value.hpp>

#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace {

using Json = boost::json::value;
using JsonObject = boost::json::object;
using JsonArray = boost::json::array;

struct JsonLimits {
  size_t max_bytes = size_t{256} << 20;
  unsigned max_depth = 64;
  bool refuse_duplicate_keys = false;
  bool python_numbers = false;  // also read Infinity and NaN (as null), which Python's json module writes
};

// With a storage (a monotonic one, say) the value lives in it and must not outlive it.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {}, boost::json::storage_ptr storage = {});
std::string to_text(const Json& json);         // compact
std::string to_pretty_text(const Json& json);  // two-space indent, keys in order

// nullptr if the value is no object, the key is absent or its value is null.
const Json* find(const Json& object, std::string_view key);
const Json* find(const JsonObject& object, std::string_view key);

// The value under key if it is there, `otherwise` if it is absent or null, an error naming the key if it has another
// type.
Result<int64_t> get_int(const Json& object, std::string_view key, int64_t otherwise);
Result<double> get_number(const Json& object, std::string_view key, double otherwise);
Result<bool> get_bool(const Json& object, std::string_view key, bool otherwise);
Result<std::string> get_string(const Json& object, std::string_view key, std::string_view otherwise);

}  // namespace millrace
