#include "text/template/iterate.h"

#include "text/template/code_points.h"

namespace millrace::jinja {
namespace {

// Items of a list or tuple, forwards or backwards.
struct SequenceIterator : Iterator {
  SequenceIterator(Value sequence, bool from_end)
      : Iterator("reversed"), values(std::move(sequence)), backwards(from_end) {}
  Result<Value> advance(Run&) override {
    const Values& items = items_of(values);
    if (position >= items.size()) return Value();
    size_t i = position++;
    return items[backwards ? items.size() - 1 - i : i];
  }
  Value values;
  size_t position = 0;
  bool backwards;
};

struct TextIterator : Iterator {
  explicit TextIterator(Value value) : Iterator("str_iterator"), text(std::move(value)) {}
  Result<Value> advance(Run& run) override {
    const std::string& characters = text_of(text);
    if (offset >= characters.size()) return Value();
    size_t start = offset;
    next_code_point(characters, offset);
    return run.heap.text(characters.substr(start, offset - start));
  }
  Value text;
  size_t offset = 0;
};

// Keys, values or pairs of a dict.
struct DictIterator : Iterator {
  DictIterator(Ref<Dict> of, View::Kind what, bool from_end)
      : Iterator("dict_iterator"), dict(std::move(of)), part(what), backwards(from_end) {}
  Result<Value> advance(Run& run) override {
    if (position >= dict->entries.size()) return Value();
    size_t i = position++;
    const auto& [key, value] = dict->entries[backwards ? dict->entries.size() - 1 - i : i];
    if (part == View::Kind::keys) return key;
    if (part == View::Kind::values) return value;
    return run.heap.tuple({key, value});
  }
  Ref<Dict> dict;
  View::Kind part;
  size_t position = 0;
  bool backwards;
};

struct RangeIterator : Iterator {
  RangeIterator(const Range& range, bool backwards)
      : Iterator("range_iterator"),
        value(backwards ? range.start + (range.count - 1) * range.step : range.start),
        step(backwards ? -range.step : range.step),
        left(range.count) {}
  Result<Value> advance(Run&) override {
    if (left <= 0) return Value();
    int64_t current = value;
    if (--left > 0) value += step;
    return Value::integer(current);
  }
  int64_t value, step, left;
};

struct EmptyIterator : Iterator {
  EmptyIterator() : Iterator("generator") {}
  Result<Value> advance(Run&) override { return Value(); }
};

Ref<Iterator> up(Iterator* iterator) { return Ref<Iterator>(iterator); }

// The iterator over a value, or none if there is no such thing.
Ref<Iterator> make_iterator(Run& run, const Value& value, bool backwards) {
  switch (value.type()) {
    case Type::list:
    case Type::tuple:
      return up(run.heap.make<SequenceIterator>(0, value, backwards).get());
    case Type::dict:
      return up(run.heap.make<DictIterator>(0, Ref<Dict>(&value.as<Dict>()), View::Kind::keys, backwards).get());
    case Type::view: {
      const auto& view = value.as<View>();
      return up(run.heap.make<DictIterator>(0, view.dict, view.part, backwards).get());
    }
    case Type::range:
      return up(run.heap.make<RangeIterator>(0, value.as<Range>(), backwards).get());
    case Type::undefined:
      return up(run.heap.make<EmptyIterator>(0).get());
    default:
      return {};
  }
}

}  // namespace

Result<Value> Iterator::next(Run& run) {
  TRY_VOID(run.step());
  if (running_) return fail("generator already executing");
  ENTER_LEVEL(run);
  running_ = true;
  auto item = advance(run);
  running_ = false;
  return item;
}

bool is_iterable(const Value& value) {
  switch (value.type()) {
    case Type::text:
    case Type::list:
    case Type::tuple:
    case Type::dict:
    case Type::undefined:
    case Type::range:
    case Type::view:
    case Type::iterator:
    case Type::loop:
      return true;
    default:
      return false;
  }
}

Result<Ref<Iterator>> iterate(Run& run, const Value& value) {
  if (value.is(Type::iterator)) return Ref<Iterator>(&value.as<Iterator>());
  if (value.is_text()) return up(run.heap.make<TextIterator>(0, value).get());
  if (Ref<Iterator> iterator = make_iterator(run, value, false)) return iterator;
  return fail("'{}' object is not iterable", type_name(value));
}

Result<Values> collect(Run& run, const Value& value) {
  Values items;
  TRY_VOID(for_each(run, value, [&](Value item) -> Result<void> {
    items.push_back(std::move(item));
    if (items.size() % 1024 == 0) TRY_VOID(run.room_for(items.size() * sizeof(Value)));
    return {};
  }));
  return items;
}

Result<Value> reversed(Run& run, const Value& value) {
  if (Ref<Iterator> iterator = make_iterator(run, value, true)) return Value(iterator);
  return Value();
}

}  // namespace millrace::jinja
