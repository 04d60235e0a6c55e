// Every template of template_cases.json against what Python's Jinja2 renders for it.
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "text/template/template.h"

namespace millrace {
namespace {

LocalTime fixed_time() {
  LocalTime time;
  time.date = std::chrono::year(2026) / 1 / 2;
  time.hour = 3;
  time.minute = 4;
  time.second = 5;
  time.microsecond = 678901;
  return time;
}

Json read_cases() {
  auto text = read_file(MILLRACE_SOURCE_DIR "/tests/text/template_cases.json", size_t{8} << 20);
  EXPECT_TRUE(text.ok());
  auto json = parse_json(*text);
  EXPECT_TRUE(json.ok());
  return *json;
}

class TemplateCases : public testing::TestWithParam<size_t> {};

TEST_P(TemplateCases, RendersAsJinja) {
  const Json data = read_cases();
  const JsonObject& group = data.at("groups").at(GetParam()).as_object();
  const Json* variables = group.if_contains("variables");
  if (variables == nullptr) variables = &data.at("variables");
  for (const Json& each : group.at("cases").as_array()) {
    const std::string source(each.at("template").as_string());
    auto parsed = Template::parse(source);
    Result<std::string> text = parsed.ok() ? parsed->render(*variables, {}, fixed_time()) : parsed.error();
    if (const Json* expected = each.as_object().if_contains("text")) {
      ASSERT_TRUE(text.ok()) << source << "\n" << text.error().message;
      EXPECT_EQ(*text, std::string(expected->as_string())) << source;
    } else {
      ASSERT_FALSE(text.ok()) << source << "\nrenders as: " << *text;
      EXPECT_TRUE(text.error().message.starts_with("line ")) << source << "\n" << text.error().message;
    }
  }
}

std::string group_name(const testing::TestParamInfo<size_t>& info) {
  std::string name(read_cases().at("groups").at(info.param).at("about").as_string());
  for (char& c : name) c = c == ' ' ? '_' : c;
  return name;
}

INSTANTIATE_TEST_SUITE_P(Groups, TemplateCases, testing::Range<size_t>(0, read_cases().at("groups").as_array().size()),
                         group_name);

// Real templates and what they should render, if somebody has them: a folder with *.jinja and golden.json (a list of
// template, input, add_generation_prompt, and text or error) named by MILLRACE_CHAT_TEMPLATES.
TEST(TemplateGolden, RealTemplates) {
  const char* folder = std::getenv("MILLRACE_CHAT_TEMPLATES");
  if (folder == nullptr) GTEST_SKIP() << "MILLRACE_CHAT_TEMPLATES is not set";
  auto text = read_file(std::string(folder) + "/golden.json", size_t{64} << 20);
  ASSERT_TRUE(text.ok()) << text.error().message;
  auto golden = parse_json(*text);
  ASSERT_TRUE(golden.ok());
  for (const Json& each : golden->as_array()) {
    const std::string name(each.at("template").as_string());
    auto source = read_file(std::string(folder) + "/" + name, size_t{1} << 20);
    ASSERT_TRUE(source.ok()) << source.error().message;
    auto parsed = Template::parse(*source);
    ASSERT_TRUE(parsed.ok()) << name << ": " << parsed.error().message;
    JsonObject variables = each.at("input").as_object();
    variables["add_generation_prompt"] = each.at("add_generation_prompt");
    variables["bos_token"] = "<s>";
    variables["eos_token"] = "</s>";
    // The stored texts show every date like this, whatever format a template asks for.
    if (name.find("Llama-3.2") != std::string::npos) variables["date_string"] = "2026-01-02";
    auto rendered = parsed->render(Json(variables), {}, fixed_time());
    if (const Json* expected = each.as_object().if_contains("text")) {
      ASSERT_TRUE(rendered.ok()) << name << ": " << rendered.error().message;
      EXPECT_EQ(*rendered, std::string(expected->as_string())) << name;
    } else if (name == "Kimi-K2-Instruct.jinja") {  // appends to a list in a namespace, which Python's sandbox refuses
      EXPECT_TRUE(rendered.ok()) << name << ": " << rendered.error().message;
    } else {
      EXPECT_FALSE(rendered.ok()) << name;
    }
  }
}

}  // namespace
}  // namespace millrace
