// The JSON-Schema-Test-Suite, where it lies beside the project: every group is right on all its instances, or refused.
// The keywords that refusals name are listed in docs/structured.md.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "grammar/small.h"
#include "grammar/written.h"

namespace millrace {
namespace {

using testing_grammar::accepts;

std::string unpacked(const std::string& path) {
  std::string text;
  FILE* pipe = ::popen(("xz -dc '" + path + "'").c_str(), "r");
  if (pipe == nullptr) return text;
  char buffer[65536];
  for (size_t got = 0; (got = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) text.append(buffer, got);
  ::pclose(pipe);
  return text;
}

// What a refusal is about: the last name of its pointer, or all of it.
std::string reason(const std::string& message) {
  if (!message.starts_with('/')) return message;
  const std::string pointer = message.substr(0, message.find(": "));
  return pointer.substr(pointer.rfind('/') + 1);
}

struct Tally {
  int groups = 0, right = 0, refused = 0, instances = 0;
  std::map<std::string, int> reasons;
};

// What is valid and not produced, as docs/structured.md says: numbers of over 24 digits, leap seconds with an offset,
// labels of host names with "--" in third place. And what draft 7 lets be an assertion and is an annotation here.
bool departs(const Json& group, const Json& test) {
  const std::string file(group.at("file").get_string()), name(test.at(0).get_string());
  const bool valid = test.at(2).get_bool();
  if (file == "optional/content") return !valid;
  if (!valid) return false;
  if (file == "optional/bignum" || file == "optional/float-overflow") return true;
  if (file == "optional/format/hostname") return to_text(test.at(1)).find("--") != std::string::npos;
  return file.starts_with("optional/format/") && name.find("leap second") != std::string::npos;
}

// A group of draft 7 says so in its schema, as a document would.
Json schema_of(const Json& group) {
  const Json *draft = find(group, "draft"), *schema = find(group, "schema");
  const bool old = draft != nullptr && *draft == Json("draft7");
  if (!old || !schema->is_object() || schema->get_object().contains("$schema")) return *schema;
  JsonObject made = schema->get_object();
  made["$schema"] = "http://json-schema.org/draft-07/schema#";
  return made;
}

void check_group(const Json& group, Tally& tally) {
  ++tally.groups;
  const std::string schema = to_text(schema_of(group));
  const bool annotates = group.at("file").get_string() == "format";  // formats are assertions here, always
  auto grammar = Grammar::compile({.kind = GrammarKind::json_schema, .text = schema, .assert_formats = !annotates},
                                  testing_grammar::vocabulary());
  if (!grammar.ok()) {
    ++tally.refused;
    ++tally.reasons[reason(grammar.error().message)];
    // A schema that nothing satisfies is refused as such: its instances must all be wrong.
    if (grammar.error().message.find("no value satisfies") == std::string::npos) return;
    for (const Json& test : group.at("tests").get_array())
      EXPECT_FALSE(test.at(2).get_bool()) << schema << "\n" << to_text(test);
    return;
  }
  bool right = true;
  for (const Json& test : group.at("tests").get_array()) {
    const std::string text = grammar::written(test.at(1));
    ++tally.instances;
    const bool taken = accepts(**grammar, text);
    if (taken != test.at(2).get_bool() && departs(group, test)) continue;
    right &= taken == test.at(2).get_bool();
    EXPECT_EQ(taken, test.at(2).get_bool())
        << group.at("file").get_string() << ": " << group.at("description").get_string() << ": "
        << test.at(0).get_string() << "\n"
        << schema.substr(0, 600) << "\n"
        << text;
  }
  tally.right += right ? 1 : 0;
}

TEST(SchemaSuite, EveryGroupIsRightOrRefused) {
  const auto path = std::filesystem::path(MILLRACE_SOURCE_DIR) / "../shared/data/json-schema-test-suite.jsonl.xz";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "there is no " << path.string();
  const std::string text = unpacked(path.string());
  if (text.empty()) GTEST_SKIP() << "xz is not there to unpack it";
  Tally tally;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    auto group = parse_json(std::string_view(text).substr(at, end - at), {.max_depth = 200});
    at = end + 1;
    if (group.ok() && find(*group, "tests") != nullptr) check_group(*group, tally);  // others are documents to fetch
  }
  EXPECT_GT(tally.groups, 700);
  EXPECT_GE(tally.right, 560);
  std::string list;
  for (const auto& [why, count] : tally.reasons) list += fmt::format("  {:4} {}\n", count, why);
  std::printf("%d groups: %d right, %d refused, %d instances\n%s", tally.groups, tally.right, tally.refused,
              tally.instances, list.c_str());
}

}  // namespace
}  // namespace millrace
