// Template: the Jinja that chat templates are written in, as Python's Jinja2 renders it in transformers' sandbox
// (trim_blocks, lstrip_blocks, loop controls, transformers' own tojson, raise_exception, strftime_now and {% generation
// %}). A template comes with a model file and is not trusted: it sees the variables it is given and pure functions,
// nothing else, and every render has a budget. Parse once, then render from any thread; a Template never changes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "text/template/local_time.h"

namespace millrace {

// What one render may use. Running into a limit is an error that names it. The stack a render needs grows with `depth`:
// at most about 2 MiB for the default.
struct RenderLimits {
  uint64_t steps = 20'000'000;             // a step is about 50 ns: a node evaluated, an item visited, some bytes moved
  size_t output_bytes = size_t{32} << 20;  // of text being put together
  size_t memory_bytes = size_t{128} << 20;  // of values alive at once
  uint32_t depth = 1000;                    // of evaluations within evaluations
  int64_t range_items = 100'000;            // of range(), as in Jinja's sandbox
};

class Template {
 public:
  // Errors carry the line. Templates above 1 MiB, or nested deeper than Jinja's own compiler accepts, are refused.
  static Result<Template> parse(std::string_view source);

  // The members of `variables` (an object) are the template's variables. `now` is what strftime_now() tells.
  Result<std::string> render(const Json& variables, const RenderLimits& limits, LocalTime now) const;

  // The names the template reads without setting them: what it can be given.
  std::span<const std::string> variables() const;

 private:
  struct Parsed;
  explicit Template(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace millrace
