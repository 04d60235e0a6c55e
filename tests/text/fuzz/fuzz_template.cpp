// A chat template, a zero byte, and JSON of its variables (without it: some of each kind): parsing fails with a reason,
// or rendering does, or the text is valid UTF-8 within the limit, and the same when rendered again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/template/code_points.h"
#include "text/template/template.h"

namespace {

constexpr const char* kVariables = R"({"i": 7, "f": -2.5, "s": "Hello World", "u": "h\u00e9llo \u4f60\u597d", "b": true,
  "none_": null, "numbers": [1, 2, 3, 4], "words": ["b", "A", "c"], "nested": [[3, 1], [2], []],
  "d": {"x": 1, "y": "two", "z": [1, 2]}, "people": [{"name": "Ann", "age": 31}, {"name": "bob", "age": 25}],
  "html": "<b>&amp;</b>", "lines": "one\ntwo\n\nfour", "huge": 18446744073709551615, "add_generation_prompt": true,
  "messages": [{"role": "system", "content": "Be nice."}, {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.0}}}]}],
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  auto variables = parse_json(end == input.npos ? std::string_view(kVariables) : input.substr(end + 1));
  if (!variables.ok()) return 0;
  auto parsed = Template::parse(input.substr(0, end));
  if (!parsed.ok()) return 0;
  RenderLimits limits;
  limits.steps = 30'000;
  limits.output_bytes = size_t{64} << 10;
  limits.memory_bytes = size_t{2} << 20;
  limits.depth = 300;
  auto text = parsed->render(*variables, limits, LocalTime());
  if (text.ok() && (!jinja::valid_utf8(*text) || text->size() > limits.output_bytes)) std::abort();
  auto again = parsed->render(*variables, limits, LocalTime());
  if (again.ok() != text.ok() || (text.ok() && *again != *text)) std::abort();
  return 0;
}
