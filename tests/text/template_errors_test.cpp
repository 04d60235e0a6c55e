// What a person reads when a template fails: the line, the reason, and for what is left out of the language, why.
#include <gtest/gtest.h>

#include "text/template/template.h"

namespace millrace {
namespace {

Error failure(std::string_view source, const Json& variables = JsonObject()) {
  auto parsed = Template::parse(source);
  if (!parsed.ok()) return parsed.error();
  auto text = parsed->render(variables, {}, LocalTime());
  EXPECT_FALSE(text.ok()) << source;
  return text.ok() ? Error() : text.error();
}

TEST(TemplateErrors, SyntaxCarriesTheLine) {
  EXPECT_EQ(
      failure("a\nb\n{% if x %}\n{{ y }}").message,
      "line 4: Unexpected end of template. The tag to close was 'elif' or 'else' or 'endif'. The innermost open tag is "
      "'if'.");
  EXPECT_EQ(failure("\n{{ a b }}").message, "line 2: expected token 'end of print statement', got 'b'");
  EXPECT_EQ(
      failure("{% for x in y %}{% endif %}").message,
      "line 1: Encountered unknown tag 'endif'. The tag to close now is 'endfor' or 'else'. The innermost open tag is "
      "'for'.");
  EXPECT_EQ(failure("{{ 'a' | nope }}").message, "line 1: No filter named 'nope'.");
  EXPECT_EQ(failure("\n\n{{ 1 is nope }}").message, "line 3: No test named 'nope'.");
  EXPECT_EQ(failure("{{ 'abc }}").message, "line 1: the string that starts with ' does not end");
  EXPECT_EQ(failure("{{ a $ }}").message, "line 1: unexpected character '$'");
  EXPECT_EQ(failure("{{ (1] }}").message, "line 1: unexpected ']', expected ')'");
  EXPECT_EQ(failure("{% break %}").message, "line 1: 'break' outside a loop");
  EXPECT_EQ(failure("\xff").message, "the template is not valid UTF-8");
}

TEST(TemplateErrors, RenderingCarriesTheLine) {
  EXPECT_EQ(failure("a\n{{ x.y.z }}").message, "line 2: 'x' is undefined");
  EXPECT_EQ(failure("{% set d = {'a': 1} %}\n\n{{ d.b.c }}").message, "line 3: 'dict object' has no attribute 'b'");
  EXPECT_EQ(failure("{{ [][3].x }}").message, "line 1: list object has no element 3");
  EXPECT_EQ(failure("{% macro m() %}\n{{ 1 + 'a' }}\n{% endmacro %}\n{{ m() }}").message,
            "line 2: unsupported operand type(s) for +: 'int' and 'str'");
  EXPECT_EQ(failure("{{ 1 +\n\n'a' }}").message, "line 1: unsupported operand type(s) for +: 'int' and 'str'");
  EXPECT_EQ(failure("\n{{ raise_exception('roles must alternate') }}").message,
            "line 2: the template raised an error: roles must alternate");
  EXPECT_EQ(failure("{{ m.content + '\\n' }}", JsonObject{{"m", JsonObject{{"content", nullptr}}}}).message,
            "line 1: unsupported operand type(s) for +: 'NoneType' and 'str'");
}

TEST(TemplateErrors, WhatIsLeftOutSaysSo) {
  for (const char* tag : {"{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}",
                          "{% block a %}{% endblock %}", "{% autoescape true %}{% endautoescape %}"}) {
    Error error = failure(tag);
    EXPECT_EQ(error.code, Code::unsupported) << tag;
    EXPECT_NE(error.message.find("not supported"), std::string::npos) << error.message;
  }
  for (const char* source : {"{{ [1] | random }}", "{{ lipsum() }}", "{{ 'x' | urlize }}"}) {
    EXPECT_EQ(failure(source).code, Code::unsupported) << source;
  }
}

TEST(TemplateErrors, InputIsChecked) {
  auto parsed = Template::parse("{{ x }}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_FALSE(parsed->render(JsonArray(), {}, LocalTime()).ok());
  EXPECT_EQ(failure("{{ x }}", JsonObject{{"x", "\xff"}}).message,
            "line 1: variable 'x': a string given to the template is not valid UTF-8");
}

TEST(TemplateErrors, VariablesAreThoseReadFromOutside) {
  auto parsed = Template::parse("{% set a = b %}{{ a }}{% for c in d %}{{ c }}{{ e }}{% endfor %}{{ range(3) }}");
  ASSERT_TRUE(parsed.ok());
  std::vector<std::string> names(parsed->variables().begin(), parsed->variables().end());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"b", "d", "e", "range"}));
}

// Where this language differs from Jinja2 on purpose.
TEST(TemplateErrors, KnownDifferences) {
  // A list that a namespace keeps may be appended to, which Python's sandbox refuses; others' lists do not change.
  auto kept = Template::parse(
      "{% set n = namespace(a=x) %}{% for i in [1, 2] %}{% set _ = n.a.append(i) %}{% endfor %}{{ n.a }}"
      "{{ n.a.pop(0) }}{{ n.a.pop() }}{{ n.a }}{{ n.a.append('b') }}{{ n.a }}{{ x }}");
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(kept->render(JsonObject{{"x", JsonArray{0}}}, {}, LocalTime()).value(), "[0, 1, 2]02[1]None[1, 'b'][0]");
  EXPECT_EQ(failure("{% set a = [1] %}{{ a.append(2) }}").message,
            "line 1: access to attribute 'append' of 'list' object is unsafe.");
  EXPECT_EQ(failure("{% set n = namespace(a=[]) %}{{ n.a.pop() }}").message, "line 1: pop from empty list");
  EXPECT_EQ(failure("{% set n = namespace(a=[1]) %}{{ n.a.pop(3) }}").message, "line 1: pop index out of range");
  EXPECT_EQ(failure("{% set n = namespace(a=[1]) %}{{ n.a.clear() }}").message,
            "line 1: access to attribute 'clear' of 'list' object is unsafe.");
  EXPECT_EQ(failure("{{ [1].pop() }}").message, "line 1: access to attribute 'pop' of 'list' object is unsafe.");
  EXPECT_EQ(failure("{{ (-2) ** 0.5 }}").message, "line 1: the power would be a complex number");
  EXPECT_EQ(failure("{{ 'a'.encode() }}").message, "line 1: this method of str is not available in templates");
  EXPECT_EQ(failure("{{ '\\ud83d' }}").message.substr(0, 28), "line 1: the escape \\ud83d is");
  EXPECT_EQ(failure("{{ '\\N{DASH}' }}").message,
            "line 1: \\N{...} escapes are not supported; write the character itself");
}

}  // namespace
}  // namespace millrace
