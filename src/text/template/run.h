// What one render carries through everything it calls: its heap, its budget, its place in the template, its clock. One
// thread. Whoever loops over something a template or a client chose calls step() in the loop; whoever makes something
// large calls reserve() first.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/template/template.h"
#include "text/template/value.h"

namespace millrace::jinja {

struct Iterator;

class Run {
 public:
  Run(const RenderLimits& render_limits, LocalTime time)
      : limits(render_limits), now(time), heap(limits.memory_bytes) {}

  Result<void> step(uint64_t count = 1) {
    steps_ += count;
    if (steps_ > limits.steps || heap.over_limit()) [[unlikely]]
      return over_budget();
    return {};
  }
  // Steps for bytes looked at one by one, and for bytes only moved.
  Result<void> read_bytes(size_t bytes) { return step(1 + bytes / 16); }
  Result<void> move_bytes(size_t bytes) { return step(1 + bytes / 512); }
  // Whether a value of so many bytes may be made; reserve() also pays for writing it.
  Result<void> room_for(uint64_t bytes) const;
  Result<void> reserve(uint64_t bytes);

  const RenderLimits limits;
  const LocalTime now;
  Heap heap;
  uint32_t line = 1;  // being evaluated; errors are reported there
  uint32_t depth = 0;

 private:
  Error over_budget() const;

  uint64_t steps_ = 0;
};

// Counts one level of evaluation within evaluation while it lives.
class Level {
 public:
  explicit Level(Run& run) : run_(run) { ++run_.depth; }
  ~Level() { --run_.depth; }
  Result<void> check() const {
    if (run_.depth > run_.limits.depth) [[unlikely]]
      return too_deep();
    return {};
  }

 private:
  Error too_deep() const;
  Run& run_;
};

// Declares a level and returns from the function if it is one too many.
#define ENTER_LEVEL(run)  \
  Level level_guard(run); \
  TRY_VOID(level_guard.check())

// What Python raises as TypeError, ValueError and the like. The line is added where the render ends.
template <class... Args>
Error fail(fmt::format_string<Args...> format, Args&&... args) {
  return error(Code::invalid, format, std::forward<Args>(args)...);
}
Error undefined_error(const Value& undefined);

// Whether a value can be a key of a dict (Python: is hashable), and pays for comparing it with others.
Result<void> check_key(Run& run, const Value& key);
// A dict of these entries, whose keys it checks.
Result<Value> make_dict(Run& run, std::vector<Dict::Entry> entries);

// Makes an undefined value: a variable, something looked up in an object, or with its own message.
Value undefined_name(Run& run, std::string_view name);
Value undefined_attribute(Run& run, const Value& object, std::string_view name);
Value undefined_hint(Run& run, std::string hint);

}  // namespace millrace::jinja
