// Calls of tools, over every template that lies beside the project and over formats written here: what the template
// renders for calls is read back, however it is cut, and is what an answer bound to the format may be.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "grammar/vocabulary.h"
#include "session/call_reader.h"

#if MILLRACE_SESSION_TEXT
namespace millrace {
namespace {

using Kind = AnswerPart::Kind;

struct Call {
  std::string name;
  JsonObject arguments;
};

std::vector<Tool> some_tools() {
  const JsonObject properties = {{"city", JsonObject{{"type", "string"}}},
                                 {"days", JsonObject{{"type", "integer"}}},
                                 {"exact", JsonObject{{"type", "boolean"}}},
                                 {"where", JsonObject{{"type", "array"}, {"items", JsonObject{{"type", "number"}}}}}};
  const Json parameters = JsonObject{{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
  return {{.name = "get_weather", .parameters = parameters}, {.name = "map.find-2", .parameters = parameters}};
}

std::vector<Call> some_calls(bool single) {
  std::vector<Call> calls = {{"get_weather", {{"city", "Paris \"<b>\" \n x</parameter> \\ é"}, {"days", 3}}}};
  if (!single) calls.push_back({"map.find-2", {{"city", "a"}, {"where", JsonArray{1, 2.5}}}});
  return calls;
}

// The texts of a format around these calls, as its description says; what a model would write. `led`: something is
// before them, so that they begin as they do after it.
std::string written(const CallFormat& f, const std::vector<Call>& calls, bool led = false) {
  auto filled = [](std::string text) {
    std::string out;
    for (char c : text)
      out += c == kCallId ? "abcdefghi" : c == kCallIndex || c == kCallCount ? "1" : std::string(1, c);
    return out;
  };
  std::string out = f.begin.substr(led ? 0 : f.lead.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i > 0) out += f.between;
    out += calls[i].name;
    if (!f.twice.empty()) out += f.twice + calls[i].name;
    if (f.style != CallFormat::Style::tags) {
      out += f.middle + to_text(calls[i].arguments);
      continue;
    }
    bool first = true;
    for (const auto& member : calls[i].arguments) {
      const Json& value = member.value();
      const size_t type = value.is_string()  ? CallFormat::kText
                          : value.is_array() ? CallFormat::kArray
                                             : CallFormat::kNumeric;
      out += (first ? f.open : f.next) + std::string(member.key()) + f.equals[type];
      out += value.is_string() ? std::string(value.get_string()) + f.quote : to_text(value);
      first = false;
    }
  }
  return filled(out + f.end);
}

std::vector<AnswerPart> read(const CallFormat& format, const std::vector<Tool>& tools, std::string_view text,
                             size_t cut) {
  CallReader reader(format, tools, false);
  std::vector<AnswerPart> events;
  for (size_t at = 0; at < text.size(); at += cut) reader.push(text.substr(at, cut), events);
  reader.finish(events);
  return events;
}

std::vector<Call> calls_in(const std::vector<AnswerPart>& events) {
  std::vector<Call> calls;
  std::string arguments;
  for (const AnswerPart& event : events) {
    if (event.kind == Kind::call) calls.push_back({event.text, {}});
    if (event.kind == Kind::arguments) arguments += event.text;
    if (event.kind != Kind::ended) continue;
    auto json = parse_json(arguments);
    EXPECT_TRUE(json.ok()) << arguments;
    if (json.ok() && !calls.empty()) calls.back().arguments = json->get_object();
    arguments.clear();
  }
  return calls;
}

// A vocabulary of bytes, for formats without control tokens.
std::shared_ptr<const GrammarVocabulary> byte_vocabulary() {
  std::vector<std::string> bytes;
  for (int b = 0; b < 256; ++b) bytes.push_back(std::string(1, static_cast<char>(b)));
  bytes.push_back("");
  return std::make_shared<GrammarVocabulary>(std::move(bytes), std::vector<Token>{256});
}

void check(const CallFormat& format, const std::string& name) {
  const std::vector<Tool> tools = some_tools();
  const std::vector<Call> calls = some_calls(format.single);
  const std::string said = format.lead.empty() ? "" : format.content_begin.substr(format.lead.size());
  const std::string text = said + "Let me see. " + written(format, calls, true);
  const auto whole = read(format, tools, text, text.size());
  for (size_t cut : {1, 2, 3, 7}) EXPECT_EQ(read(format, tools, text, cut), whole) << name << " cut by " << cut;
  ASSERT_FALSE(whole.empty());
  EXPECT_EQ(whole[0], (AnswerPart{Kind::content, "Let me see."})) << name;
  const auto found = calls_in(whole);
  ASSERT_EQ(found.size(), calls.size()) << name << "\n" << text;
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(found[i].name, calls[i].name) << name;
    EXPECT_EQ(Json(found[i].arguments), Json(calls[i].arguments)) << name << "\n" << text;
  }
  // The same description binds: free text may come first unless a call is required; an unknown name never may.
  for (bool required : {false, true}) {
    auto grammar = Grammar::compile(calls_source(format, {.tools = tools, .required = required}), byte_vocabulary());
    ASSERT_TRUE(grammar.ok()) << name << ": " << grammar.error().message;
    auto accepts = [&](const std::string& answer) {
      const auto state = (*grammar)->next_bytes((*grammar)->start(), answer);
      return state != Grammar::kRefused && (*grammar)->accepts(state);
    };
    EXPECT_EQ(accepts(text), !required) << name << "\n" << text;
    EXPECT_TRUE(accepts(written(format, calls))) << name << "\n" << written(format, calls);
    EXPECT_EQ(accepts(said + "No tool is needed."), !required) << name;
    EXPECT_FALSE(accepts(written(format, {{"unknown", calls[0].arguments}}))) << name;
    EXPECT_FALSE(accepts(written(format, {{"get_weather", {{"days", "three"}, {"wrong", 1}}}}))) << name;
  }
}

constexpr const char* kHermes =
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ '\n' }}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": "
    "{{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|end|>{% endfor %}";
constexpr const char* kTags =
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<call><f={{ c.function.name }}>{% for k, v in c.function.arguments | items %}"
    "<p={{ k }}>{{ v if v is string else v | tojson }}</p>{% endfor %}</f></call>{% endfor %}<|end|>{% endfor %}";

CallFormat format_of(std::string source) {
  auto made = ChatTemplate::from({{{"default", std::move(source)}}, {{"bos_token", "<s>"}, {"eos_token", "</s>"}}});
  return made.ok() ? find_calls(*made) : CallFormat();
}

TEST(Calls, FormatsAreFoundReadAndBindWhatTheyDescribe) {
  const CallFormat hermes = format_of(kHermes), tags = format_of(kTags);
  ASSERT_EQ(hermes.style, CallFormat::Style::json);
  EXPECT_EQ(hermes.trigger, "<tool_call>");
  EXPECT_EQ(hermes.middle, "\", \"arguments\": ");
  ASSERT_EQ(tags.style, CallFormat::Style::tags);
  EXPECT_EQ(tags.next, "</p><p=");
  check(hermes, "json");
  check(tags, "tags");
  EXPECT_FALSE(format_of("{% for m in messages %}{{ m.content }}{% endfor %}").known());
}

std::string own_template(std::string_view name) {
  return read_file(std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/session/data/calls" / name).value();
}

TEST(Calls, MessagesThatBeginWhereThePromptEnds) {
  const CallFormat led = format_of(own_template("led.jinja")), twice = format_of(own_template("twice.jinja"));
  ASSERT_EQ(led.style, CallFormat::Style::json);
  EXPECT_EQ(led.lead, ">>>");
  EXPECT_EQ(led.begin, ">>>");
  EXPECT_EQ(led.content_begin, ">>>all\n");
  ASSERT_EQ(twice.style, CallFormat::Style::tags);
  EXPECT_EQ(twice.lead, "<|start|>assistant");
  EXPECT_EQ(twice.begin, "<|start|>assistant to=");
  EXPECT_EQ(twice.content_begin, "<|start|>assistant to=user<|message|>");
  EXPECT_EQ(twice.think_begin, "<|start|>assistant to=self<|message|>");
  EXPECT_EQ(twice.think_end, "<|eom|>");
  EXPECT_EQ(twice.twice, "<|message|><calls>\n<invoke name=\"");
  check(led, "led");
  check(twice, "twice");
  const std::vector<Tool> tools = some_tools();
  using Parts = std::vector<AnswerPart>;
  for (size_t cut : {1, 4, 100}) {
    EXPECT_EQ(read(led, tools, "all\nYes.", cut), (Parts{{Kind::content, "Yes."}}));
    // What begins like nothing that is known is content, without what the prompt said.
    EXPECT_EQ(read(led, tools, "Yes >>> no.", cut), (Parts{{Kind::content, "Yes >>> no."}}));
    EXPECT_EQ(read(led, tools, "", cut), Parts{});
    EXPECT_EQ(read(led, {}, "all\nYes.", cut), (Parts{{Kind::content, "Yes."}}));
    EXPECT_EQ(read(led, tools, "unknown\n{}", cut), (Parts{{Kind::content, "unknown\n{}"}}));
    EXPECT_EQ(read(twice, tools, " to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>Yes.", cut),
              (Parts{{Kind::reasoning, "Hm."}, {Kind::content, "Yes."}}));
    // Two names that differ are no call.
    const std::string wrong = " to=get_weather<|message|><calls>\n<invoke name=\"map.find-2\">\n</invoke>\n</calls>";
    EXPECT_EQ(read(twice, tools, wrong, cut), (Parts{{Kind::content, wrong}}));
  }
}

TEST(Calls, WhatIsNoCallIsContentWhole) {
  const CallFormat format = format_of(kHermes);
  const std::vector<Tool> tools = some_tools();
  for (const std::string text : {"<tool_call>\n{\"name\": \"unknown\", \"arguments\": {}}\n</tool_call>", "a <tool_cal",
                                 "<tool_call> is how", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": 5"}) {
    for (size_t cut : {1, 5, 100}) {
      const std::vector<AnswerPart> expected = {{Kind::content, text}};
      EXPECT_EQ(read(format, tools, text, cut), expected) << cut;
    }
  }
}

TEST(Calls, OfEveryTemplate) {
  const auto folder = std::filesystem::path(MILLRACE_SOURCE_DIR) / "../shared/templates";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder.string();
  int known = 0, all = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    ++all;
    const CallFormat format = format_of(read_file(entry.path()).value());
    if (!format.known()) continue;
    ++known;
    check(format, entry.path().filename().string());
  }
  EXPECT_GE(known, 32) << "of " << all;
}

}  // namespace
}  // namespace millrace
#endif
