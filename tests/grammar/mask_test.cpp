// Masks against brute force: a token is allowed exactly if some text of up to a few more bytes makes the answer valid.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>

#include "grammar/schema.h"
#include "grammar/small.h"

namespace millrace {
namespace {

using namespace grammar;

using namespace testing_grammar;

// A way from a state to an answer that may end, depth first in an order of bytes; none is found within 40 bytes and so
// many steps.
std::optional<std::string> completed(Grammar& grammar, Grammar::State from, std::string_view order) {
  struct Place {
    Grammar::State state;
    size_t next = 0;
  };
  std::set<Grammar::State> seen{from};
  std::vector<Place> path{{from}};
  std::string text;
  while (!path.empty() && seen.size() < 2000) {
    Place& place = path.back();
    if (grammar.accepts(place.state)) return text;
    if (place.next == order.size() || path.size() > 40) {
      path.pop_back();
      if (!text.empty()) text.pop_back();
      continue;
    }
    const char c = order[place.next++];
    const Grammar::State to = grammar.next(place.state, static_cast<uint8_t>(c));
    if (to == Grammar::kRefused || !seen.insert(to).second) continue;
    path.push_back({to});
    text.push_back(c);
  }
  return std::nullopt;
}

// What closes things comes first; which letter a name needs depends on the schema.
std::optional<std::string> completed(Grammar& grammar, Grammar::State from) {
  for (const char* order : {"\"a]}:.1,605-bcefnlrstu{[\\", "\"b]}:.1,605-acefnlrstu{[\\"}) {
    if (auto found = completed(grammar, from, order)) return found;
  }
  return std::nullopt;
}

const std::vector<std::string>& pool() {
  static const std::vector<std::string> kPool = {"null",
                                                 "true",
                                                 "1",
                                                 "11",
                                                 "-1",
                                                 "1.5",
                                                 "\"\"",
                                                 "\"a\"",
                                                 "\"aa\"",
                                                 "\"1a\"",
                                                 "[]",
                                                 "[1]",
                                                 "[1,1]",
                                                 "[\"a\"]",
                                                 "[1,\"a\"]",
                                                 "[\"a\",1,1]",
                                                 "[[1]]",
                                                 "{}",
                                                 "{\"a\":1}",
                                                 "{\"a\":\"a\"}",
                                                 "{\"b\":1}",
                                                 "{\"a\":1,\"b\":1}",
                                                 "{\"b\":1,\"a\":1}",
                                                 "{\"aa\":[1]}",
                                                 "{\"a\":{\"a\":1}}",
                                                 "{\"a\":1,\"b\":1,\"c\":2}"};
  return kPool;
}

const std::vector<std::string>& schemas_to_try() {
  static const std::vector<std::string> kSchemas = {
      R"({"type":"integer","minimum":1,"maximum":111})",
      R"({"type":"array","items":{"const":1},"minItems":1,"maxItems":2})",
      R"({"type":"object","properties":{"a":{"const":1}},"additionalProperties":false})",
      R"({"type":"object","required":["a"],"properties":{"a":{}},"maxProperties":1})",
      R"({"type":"string","pattern":"^a*$","maxLength":2})",
      R"({"enum":["a",1,[1],{"a":1},"aa",null]})",
      R"({"not":{"type":["object","number","string"]}})",
      R"({"not":{"required":["a"]},"type":"object"})",
      R"({"not":{"properties":{"a":{"type":"integer"}}}})",
      R"({"not":{"additionalProperties":{"const":1}},"type":"object"})",
      R"({"oneOf":[{"type":"integer"},{"minimum":1}],"type":["number","array"],"maxItems":1})",
      R"({"oneOf":[{"required":["a"]},{"required":["b"]}],"type":"object"})",
      R"({"type":"array","contains":{"const":1},"items":{"enum":[1,"a"]},"maxItems":2})",
      R"({"type":"array","contains":{"const":1},"maxContains":1})",
      R"({"type":"array","uniqueItems":true,"items":{"enum":[1,"a"]}})",
      R"({"anyOf":[{"const":"a"},{"type":"array","prefixItems":[{"const":1},{"const":"a"}],"items":false}]})",
      R"({"type":"object","propertyNames":{"maxLength":1},"additionalProperties":{"const":1},"maxProperties":1})",
      R"({"type":"object","patternProperties":{"^a":{"type":"integer"},"b$":{"minimum":1}},
          "additionalProperties":false})",
      R"({"type":"object","dependentRequired":{"a":["b"]},"properties":{"a":true,"b":{"const":1}}})",
      R"({"if":{"type":"object"},"then":{"minProperties":2},"else":{"type":"string","minLength":1}})",
      R"({"$ref":"#/$defs/n","$defs":{"n":{"anyOf":[{"const":1},{"type":"array","items":{"$ref":"#/$defs/n"}}]}}})",
      R"({"type":"number","multipleOf":0.5,"exclusiveMinimum":0,"not":{"const":1}})",
  };
  return kSchemas;
}

TEST(Mask, AllowsWhatSomeContinuationMakesValid) {
  constexpr std::string_view kTried = "\"]}:,1.0-abn{[\\ x";  // single bytes; longer tokens all
  const std::vector<std::string> more = {"{\"", "\":", "1,", "\"}", "[1", ",1",
                                         "a\"", "11",  "]]", "\"a", "aa", "\",\""};
  for (const std::string& text : schemas_to_try()) {
    SCOPED_TRACE(text);
    const Json schema = *parse_json(text);
    Exprs exprs;
    auto schemas = Schemas::read(schema, exprs);
    ASSERT_TRUE(schemas.ok());
    const auto valid = [&](const std::string& answer) {
      auto value = parse_json(answer, {.refuse_duplicate_keys = true});
      return value.ok() && (*schemas)->valid((*schemas)->root(), *value);
    };
    auto grammar =
        Grammar::compile({.kind = GrammarKind::json_schema, .text = text, .compact = true}, vocabulary(more));
    ASSERT_TRUE(grammar.ok()) << grammar.error().message;
    std::set<std::string> prefixes;
    for (const std::string& answer : pool()) {
      EXPECT_EQ(accepts(**grammar, answer), valid(answer)) << answer;
      for (size_t i = 0; valid(answer) && i <= answer.size(); ++i) prefixes.insert(answer.substr(0, i));
    }
    for (const std::string& prefix : prefixes) {
      // Afresh for each, since trying every way makes many states.
      grammar = Grammar::compile({.kind = GrammarKind::json_schema, .text = text, .compact = true}, vocabulary(more));
      std::map<Grammar::State, std::optional<std::string>> rests;
      const Grammar::State state = (*grammar)->next_bytes((*grammar)->start(), prefix);
      ASSERT_NE(state, Grammar::kRefused) << prefix;
      auto mask = (*grammar)->allowed(state);
      ASSERT_TRUE(mask.ok());
      for (Token token = 0; token < (*grammar)->vocabulary().size(); ++token) {
        const std::string& bytes = (*grammar)->vocabulary().bytes(token);
        if (bytes.empty() || (token < 256 && kTried.find(bytes[0]) == kTried.npos)) continue;
        const bool allowed = (*mask)->has(token);
        if (prefixes.contains(prefix + bytes)) {
          EXPECT_TRUE(allowed) << "'" << prefix << "' then '" << bytes << "'";
        }
        if (!allowed) continue;
        const Grammar::State next = (*grammar)->next(state, token);
        auto [known, fresh] = rests.try_emplace(next);
        if (fresh) known->second = completed(**grammar, next);
        ASSERT_TRUE(known->second.has_value()) << "'" << prefix << "' then '" << bytes << "'";
        EXPECT_TRUE(valid(prefix + bytes + *known->second)) << prefix + bytes + *known->second;
      }
    }
  }
}

TEST(Mask, OfTokensIsWhatTheirBytesSay) {
  const std::vector<std::string> more = {"{\"",  "\":", "\": ", "\", \"", "a\"", "\"}",   "abc", "b\": 1",
                                         "name", "é",   "\xC3", "\xA9",   "\\n", "\\u00", "41"};
  for (const char* text :
       {R"({"type":"object"})", R"({"type":"object","properties":{"name":{"type":"string","maxLength":3}}})",
        R"({"type":"array","items":{"type":"string","pattern":"^a.*c$"}})",
        R"({"type":"object","additionalProperties":{"type":"integer"},"minProperties":2})"}) {
    auto grammar = compile(GrammarKind::json_schema, text, more);
    ASSERT_TRUE(grammar.ok()) << grammar.error().message;
    // A walk by the lowest bits of a counter, with every mask compared with the automaton token by token.
    uint64_t random = 7;
    Grammar::State state = (*grammar)->start();
    for (int step = 0; step < 60; ++step) {
      auto mask = (*grammar)->allowed(state);
      ASSERT_TRUE(mask.ok());
      std::vector<Token> allowed;
      for (Token token = 0; token < (*grammar)->vocabulary().size(); ++token) {
        const Grammar::State next = (*grammar)->next(state, token);
        ASSERT_EQ((*mask)->has(token), next != Grammar::kRefused) << text << " step " << step << " token " << token;
        if ((*mask)->has(token) && !(*grammar)->vocabulary().is_end(token)) allowed.push_back(token);
      }
      if (allowed.empty()) break;
      random = random * 6364136223846793005u + 1442695040888963407u;
      state = (*grammar)->next(state, allowed[(random >> 33) % allowed.size()]);
    }
  }
}

// All texts of up to three of these characters, which is enough for whole branches of the trie to be taken at once.
std::vector<std::string> many_tokens() {
  const std::string_view of[] = {"a",  "b",  "z", "A", "0", "7", "-", ".", " ", "é", "\xE2\x80\xA8",
                                 "\"", "\\", "n", ":", ",", "{", "}", "\n"};
  std::vector<std::string> texts;
  for (std::string_view one : of) {
    for (std::string_view two : of) {
      texts.push_back(std::string(one) + std::string(two));
      for (std::string_view three : of) texts.push_back(std::string(one) + std::string(two) + std::string(three));
    }
  }
  for (size_t length : {8u, 31u, 32u, 33u, 40u}) {
    for (const char* begin : {"a", "aB", "a0", "a "}) texts.push_back(begin + std::string(length, 'b'));
  }
  return texts;
}

TEST(Mask, WholeBranchesAreWhatTheirTokensSay) {
  using enum GrammarKind;
  const auto vocabulary = testing_grammar::vocabulary(many_tokens());
  for (const auto& [kind, text] :
       {std::pair{json_schema, R"({"type":"string","pattern":"^[a-z]+$"})"},
        {json_schema, R"({"type":"string","pattern":"^.*$"})"},
        {json_schema, R"({"type":"string","pattern":"^[a-z0-9-]{2,34}$"})"},
        {json_schema, R"({"type":"string","pattern":"b"})"},
        {json_schema, R"({"type":"string","pattern":"^[^0-9]*7$"})"},
        {json_schema, R"({"type":"string","pattern":"^[ab]+"})"},
        {json_schema, R"({"type":"string","pattern":"[ab]{3}"})"},
        {json_schema, R"({"type":"string","pattern":"[ab]{3}","maxLength":5})"},
        {json_schema, R"({"type":"string","pattern":"b0","minLength":2,"maxLength":6})"},
        {json_schema, R"({"type":"string","pattern":"b0|7","maxLength":60})"},
        {json_schema, R"({"type":"string","pattern":"^\\S+-\\S+$","minLength":5,"maxLength":55})"},
        {json_schema, R"({"type":"string","pattern":"^\\S+-\\S+$","maxLength":4})"},
        {json_schema, R"({"type":"object","patternProperties":{"[ab]{4}":{"type":"null"}}})"},
        {json_schema, R"({"type":"string","minLength":2,"maxLength":4})"},
        {json_schema, R"({"type":"string","maxLength":33})"},
        {json_schema, R"({"type":"array","items":{"type":"string","minLength":35}})"},
        {json_schema, R"({"not":{"enum":["ab","a","b0"]},"type":"string"})"},
        {json_schema, R"({"propertyNames":{"pattern":"^[ab]"},"type":"object"})"},
        {json_object, ""},
        {regex, "[a-zA-Z ]+\\."},
        {regex, "(a|b)*a(a|b){3}"},
        {gbnf, "root ::= [a-z]+ | \"{\" root \"}\""}}) {
    auto grammar = Grammar::compile({.kind = kind, .text = text}, vocabulary);
    ASSERT_TRUE(grammar.ok()) << text << grammar.error().message;
    uint64_t random = 11;
    Grammar::State state = (*grammar)->start();
    for (int step = 0; step < 10; ++step) {
      auto mask = (*grammar)->allowed(state);
      ASSERT_TRUE(mask.ok()) << mask.error().message;
      std::vector<Token> allowed;
      for (Token token = 0; token < vocabulary->size(); ++token) {
        const Grammar::State next = (*grammar)->next(state, token);
        ASSERT_EQ((*mask)->has(token), next != Grammar::kRefused)
            << text << " step " << step << " token " << vocabulary->bytes(token);
        if (next != Grammar::kRefused && !vocabulary->is_end(token)) allowed.push_back(token);
      }
      if (allowed.empty()) break;
      random = random * 6364136223846793005u + 1442695040888963407u;
      state = (*grammar)->next(state, allowed[(random >> 33) % allowed.size()]);
    }
  }
}

TEST(Mask, NeverAllowsAKeyTwice) {
  auto grammar = compile(GrammarKind::json_object, "", {"a\": 1, \"a", "\"", "a\""});
  ASSERT_TRUE(grammar.ok());
  EXPECT_TRUE(accepts(**grammar, R"({"a": 1, "b": 2})"));
  EXPECT_FALSE(begins(**grammar, R"({"a": 1, "a")"));
  EXPECT_FALSE(begins(**grammar, "{\"a\": 1, \"\\u0061\""));
  // Within one token too, after a key whose beginning lies before it.
  const Grammar::State state = (*grammar)->next_bytes((*grammar)->start(), "{\"");
  auto mask = (*grammar)->allowed(state);
  ASSERT_TRUE(mask.ok());
  EXPECT_TRUE((*mask)->has(256));
  const Grammar::State again = (*grammar)->next(state, 256);
  auto after = (*grammar)->allowed(again);
  ASSERT_TRUE(after.ok());
  EXPECT_FALSE((*after)->has('"'));
  EXPECT_TRUE((*after)->has('b'));
}

// Answers drawn evenly from what the masks allow: none comes to a place without a way on, and what ends is valid.
TEST(Mask, RandomAnswersNeverGetStuckAndAreValid) {
  const std::vector<std::string> more = {"{\"",      "\": ", ", \"", "\"}",   "}",  "\xC3",
                                         "\xE4\xB8", "name", "12",   "\\u00", "  ", "a\""};
  const char* schemas[] = {
      R"({"type":"object","properties":{"name":{"type":"string","maxLength":5},"n":{"type":"integer","minimum":0,"maximum":99}},"required":["name","n"],"additionalProperties":false})",
      R"({"type":"array","items":{"enum":["a","bc",1,null]},"minItems":1,"maxItems":3,"uniqueItems":true})",
      R"({"oneOf":[{"type":"string","pattern":"^[a-c]{2,4}$"},{"type":"number","multipleOf":0.5,"minimum":-2,"maximum":2}]})",
      R"({"type":"string","maxLength":3})", R"({"type":"string","format":"date"})"};
  int whole = 0;
  for (const char* text : schemas) {
    auto grammar = compile(GrammarKind::json_schema, text, more);
    ASSERT_TRUE(grammar.ok()) << grammar.error().message;
    grammar::Exprs exprs;
    auto judge = grammar::Schemas::read(*parse_json(text), exprs).value();
    const Token end = (*grammar)->vocabulary().size() - 1;
    uint64_t random = 11;
    for (int round = 0; round < 60; ++round) {
      Grammar::State state = (*grammar)->start();
      std::string answer;
      for (int step = 0; step < 200; ++step) {
        auto mask = (*grammar)->allowed(state);
        ASSERT_TRUE(mask.ok()) << mask.error().message;
        std::vector<Token> allowed;
        for (Token token = 0; token <= end; ++token)
          if ((*mask)->has(token)) allowed.push_back(token);
        ASSERT_FALSE(allowed.empty()) << text << " after " << answer;
        random = random * 6364136223846793005u + 1442695040888963407u;
        const Token token = allowed[(random >> 33) % allowed.size()];
        if (token == end) {
          auto json = parse_json(answer);
          ASSERT_TRUE(json.ok()) << answer;
          EXPECT_TRUE(judge->valid(judge->root(), *json)) << text << " gave " << answer;
          ++whole;
          break;
        }
        answer += (*grammar)->vocabulary().bytes(token);
        state = (*grammar)->next(state, token);
        ASSERT_NE(state, Grammar::kRefused) << answer;
      }
    }
  }
  EXPECT_GT(whole, 150);
}

}  // namespace
}  // namespace millrace
