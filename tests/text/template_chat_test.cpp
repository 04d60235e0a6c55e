// Chat templates of a model: which of several is used, what variables it gets, and messages brought into the shape it
// wants.
#include <gtest/gtest.h>

#include "text/chat.h"

namespace millrace {
namespace {

constexpr const char* kPlain =
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";
// Knows parts, tools and calls; arguments as objects.
constexpr const char* kRich =
    "{% for t in tools or [] %}[{{ t | tojson }}]{% endfor %}"
    "{% for m in messages %}{{ m.role }}:"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content or [] %}{{ p.text }}{% endfor %}{% "
    "endif %}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}({{ c.function.arguments | tojson }}){% endfor %};{% endfor "
    "%}";
// Wants arguments as text, and content that is not null.
constexpr const char* kTextArguments =
    "{% for m in messages %}{{ m.role }}:{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name + c.function.arguments }}{% endfor %};{% endfor %}";
constexpr const char* kPartsOnly =
    "{% for m in messages %}{% for p in m.content %}{{ p['text'] }}|{% endfor %}{% endfor %}";

ChatTemplate make(std::vector<ChatFacts::Named> templates, JsonObject tokens = {{"bos_token", "<s>"}}) {
  auto made = ChatTemplate::from({std::move(templates), std::move(tokens)});
  EXPECT_TRUE(made.ok()) << made.error().message;
  return *made;
}

std::string render(const ChatTemplate& chat_template, const Chat& chat) {
  auto text = chat_template.render(chat, {}, LocalTime());
  return text.ok() ? *text : "error: " + text.error().message;
}

Json user(Json content) { return JsonArray{JsonObject{{"role", "user"}, {"content", std::move(content)}}}; }

Json call(Json arguments) {
  return JsonArray{JsonObject{
      {"role", "assistant"},
      {"content", nullptr},
      {"tool_calls",
       JsonArray{JsonObject{{"function", JsonObject{{"name", "f"}, {"arguments", std::move(arguments)}}}}}}}};
}

Json parts(std::vector<std::string> texts) {
  JsonArray array;
  for (const std::string& text : texts) {
    array.push_back(JsonObject{{"type", "text"}, {"text", boost::json::string(text)}});
  }
  return array;
}

TEST(ChatTemplate, NoTemplate) {
  auto made = ChatTemplate::from({});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Code::not_found);
  EXPECT_NE(made.error().message.find("no chat template"), std::string::npos);
}

TEST(ChatTemplate, BrokenTemplate) {
  auto made = ChatTemplate::from({{{"default", "{% if %}"}}, {}});
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("'default' cannot be used: line 1"), std::string::npos) << made.error().message;
}

TEST(ChatTemplate, Variables) {
  ChatTemplate plain = make({{"default", kPlain}});
  EXPECT_EQ(render(plain, {.messages = user("Hi")}), "<s><user>Hi</user><assistant>");
  EXPECT_EQ(render(plain, {.messages = user("Hi"), .add_generation_prompt = false}), "<s><user>Hi</user>");
  EXPECT_EQ(render(plain, {.messages = user("Hi"), .variables = {{"bos_token", "[B]"}}}),
            "[B]<user>Hi</user><assistant>");
  EXPECT_NE(render(plain, {.messages = user("Hi"), .variables = {{"messages", 1}}}).find("cannot be set"),
            std::string::npos);
  ChatTemplate others =
      make({{"default", "{{ tools is none }}{{ documents is none }}{{ enable_thinking }}{{ eos_token is defined }}"}});
  EXPECT_EQ(render(others, {.messages = user("x"), .variables = {{"enable_thinking", false}}}), "TrueTrueFalseFalse");
  EXPECT_EQ(render(others, {.messages = user("x"), .tools = JsonArray()}), "TrueTrueFalse");
}

TEST(ChatTemplate, SeveralTemplates) {
  ChatTemplate both = make({{"default", "plain"}, {"tool_use", "with tools"}, {"rag", "other"}});
  const Json tools = JsonArray{JsonObject{{"type", "function"}}};
  EXPECT_EQ(render(both, {.messages = user("x")}), "plain");
  EXPECT_EQ(render(both, {.messages = user("x"), .tools = tools}), "with tools");
  EXPECT_EQ(render(both, {.messages = user("x"), .template_name = "rag"}), "other");
  EXPECT_EQ(render(both, {.messages = user("x"), .template_name = "nope"}),
            "error: the model has no chat template named 'nope', only default, tool_use, rag");
  EXPECT_EQ(both.names(), (std::vector<std::string>{"default", "tool_use", "rag"}));
  EXPECT_EQ(*both.source(true), "with tools");
  EXPECT_EQ(render(make({{"a", "only one"}}), {.messages = user("x")}), "only one");
  EXPECT_NE(render(make({{"a", "1"}, {"b", "2"}}), {.messages = user("x")}).find("choose one of a, b"),
            std::string::npos);
}

TEST(ChatTemplate, Abilities) {
  ChatAbilities plain = *make({{"default", kPlain}}).abilities(false);
  EXPECT_TRUE(plain.text_content && plain.system);
  EXPECT_FALSE(plain.part_content || plain.tools || plain.object_arguments || plain.null_content);
  ChatAbilities rich = *make({{"default", kRich}}).abilities(false);
  EXPECT_TRUE(rich.text_content && rich.part_content && rich.system && rich.tools && rich.object_arguments &&
              rich.null_content);
  EXPECT_FALSE(rich.text_arguments);
  ChatAbilities text_arguments = *make({{"default", kTextArguments}}).abilities(false);
  EXPECT_TRUE(text_arguments.text_arguments);
  EXPECT_FALSE(text_arguments.object_arguments || text_arguments.null_content);
  ChatAbilities parts_only = *make({{"default", kPartsOnly}}).abilities(false);
  EXPECT_TRUE(parts_only.part_content);
  EXPECT_FALSE(parts_only.text_content);
  ChatAbilities no_system =
      *make({{"default",
              "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ messages[0].content }}"}})
           .abilities(false);
  EXPECT_FALSE(no_system.system);
}

TEST(ChatTemplate, Content) {
  const Json two = parts({"one", "two"});
  EXPECT_EQ(render(make({{"default", kPlain}}), {.messages = user(two)}), "<s><user>one\ntwo</user><assistant>");
  EXPECT_EQ(render(make({{"default", kRich}}), {.messages = user(two)}), "user:onetwo;");
  EXPECT_EQ(render(make({{"default", kPartsOnly}}), {.messages = user("text")}), "text|");
  EXPECT_EQ(render(make({{"default", kPlain}}), {.messages = user(JsonArray{JsonObject{{"type", "image_url"}}})}),
            "error: messages[0].content[0] is of type 'image_url', but this model's chat template takes text only");
  EXPECT_EQ(render(make({{"default", "{{ messages[0].content }}"}}), {.messages = user(two), .as_is = true}),
            "[{'type': 'text', 'text': 'one'}, {'type': 'text', 'text': 'two'}]");
  EXPECT_EQ(render(make({{"default", kPlain}}), {.messages = "x"}), "error: 'messages' should be an array");
  EXPECT_EQ(render(make({{"default", kPlain}}), {.messages = JsonArray{1}}),
            "error: messages[0] should be an object with role and content");
  EXPECT_EQ(render(make({{"default", kPlain}}), {.messages = user("x"), .tools = "x"}),
            "error: 'tools' should be an array of tool descriptions");
}

TEST(ChatTemplate, ToolCalls) {
  const Json object = JsonObject{{"a", 1}};
  const Json text = "{\"a\":1}";
  EXPECT_EQ(render(make({{"default", kRich}}), {.messages = call(object)}), "assistant:f({\"a\": 1});");
  EXPECT_EQ(render(make({{"default", kRich}}), {.messages = call(text)}), "assistant:f({\"a\": 1});");
  EXPECT_EQ(render(make({{"default", kRich}}), {.messages = call("not json")}), "assistant:f(\"not json\");");
  EXPECT_EQ(render(make({{"default", kTextArguments}}), {.messages = call(object)}), "assistant:f{\"a\":1};");
  EXPECT_EQ(render(make({{"default", kTextArguments}}), {.messages = call(text)}), "assistant:f{\"a\":1};");
}

TEST(ChatTemplate, ErrorsNameTheTemplate) {
  ChatTemplate strict = make({{"default", "{{ raise_exception('roles must alternate') }}"}});
  EXPECT_EQ(render(strict, {.messages = user("x")}),
            "error: chat template: line 1: the template raised an error: roles must alternate");
}

}  // namespace
}  // namespace millrace
