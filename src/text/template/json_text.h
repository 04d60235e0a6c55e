// Values as JSON text, as Python's json.dumps writes them.
#pragma once

#include <optional>

#include "text/template/run.h"

namespace millrace::jinja {

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level's
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

Result<std::string> to_json(Run& run, const Value& value, const JsonStyle& style);

}  // namespace millrace::jinja
