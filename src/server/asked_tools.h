// AskedTools: what an answer may call, as clients of the interfaces beside OpenAI's chats say it: tools one by one, and
// whether one must be called. Values; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/api_error.h"
#include "server/request_body.h"

namespace millrace {

class AskedTools {
 public:
  struct Given {
    std::string_view name, description;
    const Json* parameters = nullptr;  // a JSON Schema; null: it takes none
    bool strict = false;
  };
  // `place` names it in errors.
  std::optional<ApiError> add(const std::string& place, const Given& given);
  bool empty() const { return use_.tools.empty(); }

  void require() { use_.required = true; }  // at least one call
  void single() { use_.single = true; }     // at most one
  // One of these and no other must be called; `field` says so.
  std::optional<ApiError> only(std::string_view field, std::string_view name);
  void put(RequestBody& out) &&;

 private:
  ToolUse use_;
  JsonArray shown_;  // as templates get them
};

// A call in a message of the assistant, as templates get it. Arguments are an object, or JSON as text.
JsonObject call_json(std::string_view id, std::string_view name, Json arguments);

}  // namespace millrace
