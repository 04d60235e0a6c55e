#include "text/template/run.h"

namespace millrace::jinja {

Result<void> Run::room_for(uint64_t bytes) const {
  if (heap.room_for(bytes)) return {};
  return error(Code::no_memory, "the template wants {} bytes more than the {} its values hold, above the limit of {}",
               bytes, heap.live(), heap.limit());
}

Result<void> Run::reserve(uint64_t bytes) {
  TRY_VOID(room_for(bytes));
  return move_bytes(bytes);
}

Error Run::over_budget() const {
  if (heap.over_limit()) {
    return error(Code::no_memory, "the template's values hold {} bytes, more than the limit of {}", heap.live(),
                 heap.limit());
  }
  return error(Code::invalid, "the template takes more than the limit of {} steps", limits.steps);
}

Error Level::too_deep() const {
  return error(Code::invalid, "the template nests evaluations deeper than the limit of {}", run_.limits.depth);
}

Error undefined_error(const Value& undefined) { return fail("{}", undefined.as<Undefined>().message()); }

Result<void> check_key(Run& run, const Value& key) {
  if (key.is_text()) return run.read_bytes(text_of(key).size());
  if (!key.is(Type::tuple)) {
    if (!is_hashable(key)) return fail("unhashable type: '{}'", type_name(key));
    return run.step();
  }
  // Tuples within tuples are compared by recursion, so their number is capped.
  constexpr size_t kMaxTuples = 64;
  std::vector<const Value*> waiting = {&key};
  size_t tuples = 0;
  while (!waiting.empty()) {
    const Value& each = *waiting.back();
    waiting.pop_back();
    TRY_VOID(run.read_bytes(each.is_text() ? text_of(each).size() : 0));
    if (!each.is(Type::tuple)) {
      if (!is_hashable(each)) return fail("unhashable type: '{}'", type_name(each));
      continue;
    }
    if (++tuples > kMaxTuples) return fail("a tuple that holds more than {} tuples cannot be a key", kMaxTuples);
    for (const Value& item : each.as<Tuple>().items) waiting.push_back(&item);
  }
  return {};
}

Result<Value> make_dict(Run& run, std::vector<Dict::Entry> entries) {
  for (const auto& [key, value] : entries) TRY_VOID(check_key(run, key));
  return run.heap.dict(std::move(entries));
}

Value undefined_name(Run& run, std::string_view name) {
  auto made = run.heap.make<Undefined>(name.size());
  made->name = name;
  return made;
}

Value undefined_attribute(Run& run, const Value& object, std::string_view name) {
  auto made = run.heap.make<Undefined>(name.size());
  made->name = name;
  made->object_type = object.is(Type::none) ? "None" : fmt::format("{} object", type_name(object));
  return made;
}

Value undefined_hint(Run& run, std::string hint) {
  auto made = run.heap.make<Undefined>(hint.size());
  made->hint = std::move(hint);
  return made;
}

}  // namespace millrace::jinja
