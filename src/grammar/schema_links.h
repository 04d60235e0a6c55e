// SchemaLinks: where in a schema document a reference leads: $id and $anchor of every place, found in one walk, and
// JSON pointers. Works on the document alone and knows no keyword but those that name things. Read only once made.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace millrace::grammar {

// Up to draft 7 the siblings of $ref are not read; a keyword is known from its draft on.
enum class Draft : uint8_t { four, six, seven, latest };

struct SchemaPlace {
  const Json* json = nullptr;
  std::string pointer;  // from the root of the document
  size_t resource = 0;  // whose base address holds there
};

class SchemaLinks {
 public:
  explicit SchemaLinks(const Json& document);

  Draft draft() const { return draft_; }
  size_t resource_of(const Json* json, size_t otherwise) const;
  Result<SchemaPlace> resolve(std::string_view reference, const SchemaPlace& from) const;

 private:
  struct Resource {
    std::string uri;
    const Json* json = nullptr;
    std::string pointer;
  };
  void note(const Json& json, const std::string& pointer, size_t& resource);
  Result<SchemaPlace> follow(const Resource& resource, size_t index, std::string_view pointer) const;

  Draft draft_ = Draft::latest;
  std::vector<Resource> resources_;
  std::map<std::string, size_t, std::less<>> by_uri_;
  std::set<std::string, std::less<>> twice_;                 // addresses that two schemas have
  std::map<std::string, SchemaPlace, std::less<>> anchors_;  // address#anchor
  std::unordered_map<const Json*, size_t> owner_;
};

std::string pointer_step(std::string_view pointer, std::string_view key);  // pointer/key, escaped

}  // namespace millrace::grammar
