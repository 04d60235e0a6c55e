// Templates that try to run forever or to use up memory or stack: each must end in an error that names the limit.
#include <gtest/gtest.h>

#include <thread>

#include "text/template/template.h"

namespace millrace {
namespace {

RenderLimits small_limits() {
  RenderLimits limits;
  limits.steps = 2'000'000;
  limits.output_bytes = size_t{1} << 20;
  limits.memory_bytes = size_t{16} << 20;
  return limits;
}

Result<std::string> render(const std::string& source, const RenderLimits& limits = small_limits()) {
  auto parsed = Template::parse(source);
  if (!parsed.ok()) return parsed.error();
  return parsed->render(JsonObject(), limits, LocalTime());
}

std::string repeat(std::string_view text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

// The message of the error a template ends with.
std::string failure(const std::string& source) {
  auto text = render(source);
  EXPECT_FALSE(text.ok()) << source.substr(0, 200);
  return text.ok() ? "" : text.error().message;
}

#define EXPECT_FAILS(source, part) EXPECT_PRED2(contains, failure(source), part)
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

constexpr const char* kSpace = "{% set ns = namespace(x='a', l=[1]) %}";

TEST(TemplateLimits, Steps) {
  EXPECT_FAILS("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "steps");
  EXPECT_FAILS(std::string(kSpace) + "{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
               "steps");
  EXPECT_FAILS(
      std::string(kSpace) + "{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}",
      "steps");
  EXPECT_FAILS("{% set x = 'a' * 1000000 %}{% for i in range(100000) %}{% if 'b' in x %}{% endif %}{% endfor %}",
               "steps");
  EXPECT_FAILS(
      "{% set x = 'a' * 1000000 %}{% set y = x ~ '' %}{% for i in range(100000) %}{% if x == y %}{% endif %}"
      "{% endfor %}",
      "steps");
  EXPECT_FAILS(
      "{% set x = 'a' * 1000000 %}{% set d = {x: 1} %}{% for i in range(100000) %}{% if d[x] %}{% endif %}"
      "{% endfor %}",
      "steps");
  EXPECT_FAILS("{% set l = range(100000) | list %}{% for i in l %}{% set s = l | sort(reverse=true) %}{% endfor %}",
               "steps");
}

TEST(TemplateLimits, Memory) {
  for (const char* expression :
       {"'a' * 10000000000", "[1] * 10000000000", "'ab' * 9223372036854775807", "'%1000000000d' % 1",
        "'%*d' % (100000000000, 1)", "'{:>1000000000000}'.format(1)", "'x'.center(1000000000000)",
        "'\\t'.expandtabs(1000000000000)", "'a' | indent(10000000000)", "[1] | batch(1000000000, 0) | list",
        "('a' * 1000000).replace('', 'x' * 1000000)", "[[1]] | tojson(indent=100000000)",
        "[1] | slice(1000000000) | list"}) {
    EXPECT_FAILS("{{ " + std::string(expression) + " }}", "limit of 16777216");
  }
  EXPECT_FAILS(std::string(kSpace) + "{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", "16777216");
  EXPECT_FAILS(std::string(kSpace) + "{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}", "16777216");
  EXPECT_FAILS("{{ ('a,' * 1000000).split(',') | length }}", "16777216");
}

TEST(TemplateLimits, Output) {
  EXPECT_FAILS("{% set x = 'a' * 1000 %}{% for i in range(100000) %}{{ x }}{% endfor %}", "1048576 bytes");
  EXPECT_FAILS("{% set y %}{% for i in range(100000) %}{{ 'a' * 100 }}{% endfor %}{% endset %}", "1048576 bytes");
}

TEST(TemplateLimits, Ranges) {
  EXPECT_FAILS("{{ range(100001) }}", "limit of 100000");
  EXPECT_FAILS("{{ range(-9223372036854775807, 9223372036854775807) }}", "18446744073709551614");
  EXPECT_EQ(*render("{{ range(100000) | length }}"), "100000");
}

TEST(TemplateLimits, Depth) {
  for (const std::string& source :
       {std::string("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
        std::string("{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}"),
        std::string("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"),
        std::string(kSpace) + "{% for i in range(30000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
        std::string(kSpace) + "{% for i in range(30000) %}{% set ns.x = {1: ns.x} %}{% endfor %}{{ ns.x | tojson }}",
        std::string(kSpace) + "{% for i in range(30000) %}{% set ns.x = [ns.x] %}{% set ns.l = [ns.l] %}{% endfor %}"
                              "{{ ns.x == ns.l }}",
        std::string(kSpace) +
            "{% for i in range(30000) %}{% set ns.l = ns.l | map('string') %}{% endfor %}{{ ns.l | list }}",
        "{% macro m() %}" + repeat("{% for x in [1] if 1 %}", 90) + "{{ m() }}" + repeat("{% endfor %}", 90) +
            "{% endmacro %}{{ m() }}"}) {
    EXPECT_FAILS(source, "deeper than the limit of 1000");
  }
}

// What nests deeply but is never walked is no error, and is freed without recursion.
TEST(TemplateLimits, DeepValuesAreFreed) {
  EXPECT_EQ(*render(std::string(kSpace) + "{% for i in range(30000) %}{% set ns.x = [ns.x] %}{% endfor %}ok"), "ok");
  EXPECT_EQ(
      *render(std::string(kSpace) + "{% for i in range(30000) %}{% set ns.x = ns.x | map('upper') %}{% endfor %}ok"),
      "ok");
}

// Values that refer to each other in a ring are freed when the render ends; the heap checks that nothing is left.
TEST(TemplateLimits, Rings) {
  EXPECT_EQ(*render("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.list = [ns, {'k': ns}] %}ok"), "ok");
  EXPECT_EQ(*render("{% set ns = namespace() %}{% macro m() %}{{ ns }}{% endmacro %}{% set ns.m = m %}ok"), "ok");
  EXPECT_EQ(*render("{% set ns = namespace() %}{% for x in [1] %}{% set ns.loop = loop %}{% set y = loop.changed(ns) %}"
                    "{% endfor %}ok"),
            "ok");
  EXPECT_EQ(*render("{% set ns = namespace() %}{% set ns.g = [ns] | unique %}{% for x in ns.g %}{% endfor %}ok"), "ok");
}

TEST(TemplateLimits, AnIteratorCannotAskItself) {
  EXPECT_FAILS(
      "{% set ns = namespace(l=none) %}{% for a in [1, 2, 3] if ns.l is none or ns.l.last %}"
      "{% set ns.l = loop %}{% endfor %}",
      "already executing");
}

TEST(TemplateLimits, Nesting) {
  constexpr size_t kMany = 60'000;
  for (const std::string& source :
       {"{{ " + repeat("(", kMany) + "1" + repeat(")", kMany) + " }}",
        "{{ " + repeat("[", kMany) + repeat("]", kMany) + " }}", "{{ " + repeat("not ", kMany) + "1 }}",
        "{{ " + repeat("-", kMany) + "1 }}", "{{ a" + repeat(".b", kMany) + " }}", "{{ 1" + repeat("+1", kMany) + " }}",
        "{{ 1" + repeat("|string", kMany) + " }}", "{{ a" + repeat("()", kMany) + " }}",
        "{{ a" + repeat("[0]", kMany) + " }}", "{{ 1" + repeat(" and 1", kMany) + " }}",
        "{{ 1 " + repeat("if 2 else 3 ", kMany) + " }}", repeat("{% if 1 %}", kMany), repeat("{% macro m() %}", kMany),
        "{{ " + repeat("f(", kMany) + repeat(")", kMany) + " }}", "{{ " + repeat("{1:", kMany) + " }}"}) {
    auto parsed = Template::parse(source);
    ASSERT_FALSE(parsed.ok()) << source.substr(0, 60);
    EXPECT_TRUE(contains(parsed.error().message, "deeper than")) << parsed.error().message;
  }
  EXPECT_FALSE(Template::parse(std::string((size_t{1} << 20) + 1, 'x')).ok());
}

// Long without being deep.
TEST(TemplateLimits, WideTemplates) {
  EXPECT_EQ(*render("{{ 1" + repeat("~2", 20'000) + " }}"), "1" + repeat("2", 20'000));
  EXPECT_EQ(*render("{% if 0 %}" + repeat("{% elif 0 %}", 20'000) + "{% else %}x{% endif %}"), "x");
  EXPECT_EQ(*render("{{ [" + repeat("1,", 50'000) + "] | length }}"), "50000");
  EXPECT_EQ(*render("{{ 1" + repeat(" < 2", 1) + repeat(" < 3", 1) + " }}"), "True");
}

TEST(TemplateLimits, IntegersDoNotWrap) {
  for (const char* expression :
       {"9223372036854775807 + 1", "-9223372036854775807 - 2", "9223372036854775807 * 2", "2 ** 63", "10 ** 100",
        "-(-9223372036854775807 - 1)", "(-9223372036854775807 - 1) // -1", "(-9223372036854775807 - 1) | abs",
        "9223372036854775807 | round(-1)", "9223372036854775808", "'9223372036854775808' | int", "1e300 | int"}) {
    EXPECT_FAILS("{{ " + std::string(expression) + " }}", "64");
  }
  EXPECT_EQ(*render("{{ (-9223372036854775807 - 1) % -1 }} {{ 'abc'[-9223372036854775807 - 1:9223372036854775807] }}"),
            "0 abc");
}

// A parsed template is shared by threads.
TEST(TemplateLimits, ManyThreads) {
  auto parsed = Template::parse(
      "{% macro m(x) %}{{ x | upper }}{% endmacro %}"
      "{% for w in words | sort %}{{ loop.index }}{{ m(w) }}{% endfor %}{{ 'const' | length }}");
  ASSERT_TRUE(parsed.ok());
  std::vector<std::thread> threads;
  std::vector<std::string> results(4);
  for (size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < 50; ++n) {
        results[i] = *parsed->render(JsonObject{{"words", JsonArray{"b", "a"}}}, {}, LocalTime());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const std::string& text : results) EXPECT_EQ(text, "1A2B5");
}

}  // namespace
}  // namespace millrace
