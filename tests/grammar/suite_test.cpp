// The JSON-Schema-Test-Suite, where it lies beside the project: every group is right on all its instances, or refused,
// and docs/schema-suite.md lists those that are (MILLRACE_UPDATE_DOCS=1 writes it). A few groups of our own, in the
// same form, are always there.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/file.h"
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
  int groups = 0, right = 0, refused = 0, unsatisfiable = 0, instances = 0;
  std::map<std::string, int> reasons;
  std::map<std::string, std::string> lines;  // of the docs, by file
};

// An entry of a list, wrapped at 120 columns.
std::string entry(const std::string& text) {
  std::string lines = "-";
  size_t column = lines.size();
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const bool fits = column + 1 + (end - at) <= 120;
    lines.append(fits ? " " : "\n  ").append(text, at, end - at);
    column = (fits ? column : 1) + 1 + (end - at);
    at = end + 1;
  }
  return lines + "\n";
}

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
    if (grammar.error().message.find("no value satisfies") == std::string::npos) {
      const std::string file(group.at("file").get_string());
      tally.lines[file] += entry(fmt::format("{}, {}: `{}`", group.at("draft").get_string(),
                                             group.at("description").get_string(), grammar.error().message));
      return;
    }
    ++tally.unsatisfiable;
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

std::string refused_groups(const Tally& tally) {
  std::string text = fmt::format(
      "# What of the JSON-Schema-Test-Suite is refused\n\n"
      "Of {} groups (2020-12 and draft 7, the optional ones too) {} are right on all their instances, {} are refused "
      "as\n"
      "schemas that no value satisfies, which is what their instances say too, and the {} below are refused before "
      "the\n"
      "first token, with the keyword and its JSON pointer. None is wrong. Made by `MILLRACE_UPDATE_DOCS=1 "
      "test_grammar`;\n"
      "[structured.md](structured.md) says what is meant. Headings are files of the suite; an entry has the draft, the "
      "group\n"
      "and what is said.\n",
      tally.groups, tally.right, tally.unsatisfiable, tally.refused - tally.unsatisfiable);
  for (const auto& [file, lines] : tally.lines) text += fmt::format("\n## {}\n\n{}", file, lines);
  return text;
}

void check_docs(const std::string& text) {
  const std::filesystem::path path = std::filesystem::path(MILLRACE_SOURCE_DIR) / "docs/schema-suite.md";
  if (std::getenv("MILLRACE_UPDATE_DOCS") == nullptr) {
    EXPECT_EQ((std::filesystem::exists(path) ? read_file(path).value() : ""), text)
        << "run this test with MILLRACE_UPDATE_DOCS=1";
    return;
  }
  auto file = AtomicFile::create(path).value();
  ASSERT_TRUE(file.write(text).ok());
  ASSERT_TRUE(file.commit().ok());
}

void check_lines(std::string_view text, Tally& tally) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    auto group = parse_json(text.substr(at, end - at), {.max_depth = 200});
    at = end + 1;
    if (group.ok() && find(*group, "tests") != nullptr) check_group(*group, tally);  // others are documents to fetch
  }
}

TEST(SchemaSuite, EveryGroupIsRightOrRefused) {
  const auto path = std::filesystem::path(MILLRACE_SOURCE_DIR) / "../shared/data/json-schema-test-suite.jsonl.xz";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path.string();
  const std::string text = unpacked(path.string());
  if (text.empty()) GTEST_SKIP() << "xz is not there to unpack it";
  Tally tally;
  check_lines(text, tally);
  EXPECT_GT(tally.groups, 700);
  EXPECT_GE(tally.right, 560);
  check_docs(refused_groups(tally));
}

// One group a keyword, written for this test.
constexpr std::string_view kOwn = R"([
 {"draft":"draft2020-12","file":"own","description":"if decides",
  "schema":{"if":{"required":["a"]},"then":{"required":["b"]},"else":{"maxProperties":1}},
  "tests":[["then",{"a":1,"b":2},true],["not then",{"a":1},false],["else",{"c":1},true],
   ["not else",{"c":1,"d":2},false],["no object",3,true]]},
 {"draft":"draft2020-12","file":"own","description":"one of two that overlap",
  "schema":{"oneOf":[{"multipleOf":2},{"multipleOf":3}]},
  "tests":[["first",4,true],["second",9,true],["both",6,false],["none",7,false]]},
 {"draft":"draft2020-12","file":"own","description":"what is not",
  "schema":{"type":["string","integer"],"not":{"enum":["a",1]}},
  "tests":[["left out",1,false],["left out too","a",false],["others","b",true],["numbers",2,true],
   ["types",null,false]]},
 {"draft":"draft2020-12","file":"own","description":"names",
  "schema":{"propertyNames":{"pattern":"^[a-c]+$"},"patternProperties":{"^a":{"type":"null"}},
   "additionalProperties":{"type":"boolean"}},
  "tests":[["by pattern",{"ab":null},true],["not by pattern",{"ab":true},false],["other",{"b":false},true],
   ["no such name",{"d":true},false]]},
 {"draft":"draft2020-12","file":"own","description":"places",
  "schema":{"prefixItems":[{"type":"string"}],"items":{"const":0},"contains":{"const":"x"},"maxItems":3},
  "tests":[["whole",["x",0],true],["nothing contained",["y",0],false],["wrong rest",["x",1],false],
   ["too long",["x",0,0,0],false]]},
 {"draft":"draft7","file":"own","description":"places as they were",
  "schema":{"items":[{"type":"string"}],"additionalItems":false},
  "tests":[["one",["x"],true],["two",["x","y"],false],["none",[],true]]},
 {"draft":"draft2020-12","file":"own","description":"a tree",
  "schema":{"type":"array","items":{"$ref":"#"},"maxItems":2},
  "tests":[["leaf",[],true],["nested",[[],[[]]],true],["wide",[[],[],[]],false],["other",[1],false]]},
 {"draft":"draft2020-12","file":"own","description":"nothing",
  "schema":{"allOf":[{"type":"string"},{"type":"null"}]},
  "tests":[["text","a",false],["null",null,false]]},
 {"draft":"draft2020-12","file":"own","description":"what is refused",
  "schema":{"unevaluatedItems":false},
  "tests":[["anything",[1],false]]}
])";

TEST(SchemaSuite, GroupsOfOurOwn) {
  Tally tally;
  const Json own = parse_json(kOwn).value();
  for (const Json& group : own.get_array()) check_group(group, tally);
  EXPECT_EQ(tally.groups, 9);
  EXPECT_EQ(tally.right, 7);
  EXPECT_EQ(tally.refused, 2);
  EXPECT_EQ(tally.unsatisfiable, 1);
  EXPECT_EQ(tally.instances, 29);
  EXPECT_NE(tally.lines["own"].find("/unevaluatedItems: "), std::string::npos) << tally.lines["own"];
}

}  // namespace
}  // namespace millrace
