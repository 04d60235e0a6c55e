// Filters that give iterators, as Jinja's do: nothing is computed, and nothing fails, before somebody asks for the
// items.
#include <set>

#include "text/template/access.h"
#include "text/template/code_points.h"
#include "text/template/convert.h"
#include "text/template/filters.h"
#include "text/template/iterate.h"
#include "text/template/tests.h"

namespace millrace::jinja {
namespace {

// The source of a lazy filter, opened when the first item is wanted.
class Source {
 public:
  explicit Source(Value value) : value_(std::move(value)) {}

  // Whether there may be items. map, select and the like ask first whether the source is true.
  Result<bool> open(Run& run, bool only_if_true) {
    if (iterator_ || done_) return !done_;
    if (only_if_true) {
      TRY(bool some, truthy(run, value_));
      done_ = !some;
      if (done_) return false;
    }
    TRY(iterator_, iterate(run, value_));
    return true;
  }
  // The next item of an open source, or missing.
  Result<Value> next(Run& run) {
    TRY(Value item, iterator_->next(run));
    done_ = item.is_missing();
    return item;
  }

 private:
  Value value_;
  Ref<Iterator> iterator_;
  bool done_ = false;
};

Error no_such(Run& run, std::string_view kind, const Value& name) {
  auto repr = to_repr(run, name);
  return fail("No {} named {}.", kind, repr.ok() ? *repr : std::string("?"));
}

struct MapIterator : Iterator {
  MapIterator(Value input, Arguments given)
      : Iterator("sync_do_map"), source(std::move(input)), arguments(std::move(given)) {}

  Result<Value> advance(Run& run) override {
    TRY(bool open, source.open(run, true));
    if (!open) return Value();
    if (!prepared) TRY_VOID(prepare(run));
    TRY(Value item, source.next(run));
    if (item.is_missing()) return item;
    if (filter == nullptr) return path.get(run, item, otherwise);
    Arguments copy{rest, arguments.named};
    return call_filter(run, *filter, item, copy);
  }

  Result<void> prepare(Run& run) {
    prepared = true;
    if (arguments.positional.empty()) {
      Value attribute = arguments.take("attribute");
      if (attribute.is_missing()) return fail("map requires a filter argument");
      otherwise = arguments.take("default");
      if (!arguments.named.empty()) return fail("Unexpected keyword argument '{}'", arguments.named.front().first);
      TRY(path, AttributePath::parse(run, attribute));
      return {};
    }
    const Value& wanted = arguments.positional.front();
    filter = wanted.is_text() ? find_filter(text_of(wanted)) : nullptr;
    if (filter == nullptr) return no_such(run, "filter", wanted);
    rest.assign(arguments.positional.begin() + 1, arguments.positional.end());
    return {};
  }

  Source source;
  Arguments arguments;
  bool prepared = false;
  const FilterEntry* filter = nullptr;
  Values rest;
  AttributePath path;
  Value otherwise;
};

struct SelectIterator : Iterator {
  SelectIterator(std::string_view what, Value input, Arguments given, bool keep_if, bool look_up)
      : Iterator(what), source(std::move(input)), arguments(std::move(given)), keeps(keep_if), by_attribute(look_up) {}

  Result<Value> advance(Run& run) override {
    TRY(bool open, source.open(run, true));
    if (!open) return Value();
    if (!prepared) TRY_VOID(prepare(run));
    while (true) {
      TRY(Value item, source.next(run));
      if (item.is_missing()) return item;
      Value tested = item;
      if (by_attribute) {
        TRY(tested, path.get(run, item));
      }
      bool passed = false;
      if (test != nullptr) {
        Arguments copy{rest, arguments.named};
        TRY(passed, call_test(run, *test, tested, copy));
      } else {
        TRY(passed, truthy(run, tested));
      }
      if (passed == keeps) return item;
    }
  }

  Result<void> prepare(Run& run) {
    prepared = true;
    size_t offset = 0;
    if (by_attribute) {
      if (arguments.positional.empty()) return fail("Missing parameter for attribute name");
      TRY(path, AttributePath::parse(run, arguments.positional.front()));
      offset = 1;
    }
    if (arguments.positional.size() <= offset) return {};
    const Value& wanted = arguments.positional[offset];
    test = wanted.is_text() ? find_test(text_of(wanted)) : nullptr;
    if (test == nullptr) return no_such(run, "test", wanted);
    rest.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(offset) + 1, arguments.positional.end());
    return {};
  }

  Source source;
  Arguments arguments;
  bool keeps, by_attribute;
  bool prepared = false;
  const TestEntry* test = nullptr;
  Values rest;
  AttributePath path;
};

struct KeyLess {
  bool operator()(const Value& a, const Value& b) const { return compare_keys(a, b) < 0; }
};

struct UniqueIterator : Iterator {
  UniqueIterator(Value input, AttributePath by, bool case_matters)
      : Iterator("do_unique"), source(std::move(input)), path(std::move(by)), case_sensitive(case_matters) {}
  void let_go() override { seen.clear(); }

  Result<Value> advance(Run& run) override {
    TRY(bool open, source.open(run, false));
    while (open) {
      TRY(Value item, source.next(run));
      if (item.is_missing()) return item;
      TRY(Value key, path.get(run, item));
      if (key.is_text() && !case_sensitive) key = run.heap.text(lower(text_of(key)));
      TRY_VOID(check_key(run, key));
      TRY_VOID(run.room_for(seen.size() * 4 * sizeof(Value)));
      if (seen.insert(key).second) return item;
    }
    return Value();
  }

  Source source;
  AttributePath path;
  bool case_sensitive;
  std::set<Value, KeyLess> seen;
};

struct BatchIterator : Iterator {
  BatchIterator(Value input, int64_t count, Value filler)
      : Iterator("do_batch"), source(std::move(input)), size(count), fill(std::move(filler)) {}

  Result<Value> advance(Run& run) override {
    TRY(bool open, source.open(run, false));
    if (!open) return Value();
    Values batch;
    if (!ahead.is_missing()) batch.push_back(std::exchange(ahead, Value()));
    while (true) {
      TRY(Value item, source.next(run));
      if (item.is_missing()) break;
      if (static_cast<int64_t>(batch.size()) == size) {
        ahead = std::move(item);
        return run.heap.list(std::move(batch));
      }
      batch.push_back(std::move(item));
      TRY_VOID(run.room_for(batch.size() * sizeof(Value)));
    }
    if (batch.empty()) return Value();
    if (!fill.is_missing() && !fill.is(Type::none) && static_cast<int64_t>(batch.size()) < size) {
      TRY_VOID(run.reserve(static_cast<uint64_t>(size) * sizeof(Value)));
      batch.resize(static_cast<size_t>(size), fill);
    }
    return run.heap.list(std::move(batch));
  }
  void let_go() override { ahead = Value(); }

  Source source;
  int64_t size;
  Value fill;
  Value ahead;  // the item that did not fit the batch before
};

struct SliceIterator : Iterator {
  SliceIterator(Value sequence, int64_t count, Value filler)
      : Iterator("sync_do_slice"), input(std::move(sequence)), slices(count), fill(std::move(filler)) {}

  Result<Value> advance(Run& run) override {
    if (items.is_missing()) {
      TRY(Values all, collect(run, input));
      items = run.heap.list(std::move(all));
      if (slices == 0) return fail("integer division or modulo by zero");
    }
    if (number >= slices) return Value();
    const Values& all = items_of(items);
    auto count = static_cast<int64_t>(all.size());
    int64_t each = count / slices, longer = count % slices;
    int64_t start = number * each + std::min(number, longer);
    int64_t end = start + each + (number < longer ? 1 : 0);
    Values part(all.begin() + start, all.begin() + end);
    if (!fill.is_missing() && !fill.is(Type::none) && number >= longer) part.push_back(fill);
    ++number;
    return run.heap.list(std::move(part));
  }
  void let_go() override { items = Value(); }

  Value input;
  int64_t slices;
  Value fill;
  Value items;
  int64_t number = 0;
};

struct ItemsIterator : Iterator {
  explicit ItemsIterator(Value value) : Iterator("do_items"), input(std::move(value)) {}

  Result<Value> advance(Run& run) override {
    if (input.is_undefined()) return Value();
    if (!input.is(Type::dict)) return fail("Can only get item pairs from a mapping.");
    const auto& entries = input.as<Dict>().entries;
    if (position >= entries.size()) return Value();
    const auto& [key, value] = entries[position++];
    return run.heap.tuple({key, value});
  }

  Value input;
  size_t position = 0;
};

Result<Value> map(Run& run, const Value& input, Arguments& arguments) {
  return Value(run.heap.make<MapIterator>(0, input, std::move(arguments)));
}

template <bool kKeeps, bool kByAttribute>
Result<Value> select(Run& run, const Value& input, Arguments& arguments) {
  constexpr std::string_view kName = "select_or_reject";
  return Value(run.heap.make<SelectIterator>(0, kName, input, std::move(arguments), kKeeps, kByAttribute));
}

Result<Value> unique(Run& run, const Value& input, Values& arguments) {
  TRY(bool case_sensitive, truthy(run, arguments[0]));
  TRY(AttributePath path, AttributePath::parse(run, arguments[1]));
  return Value(run.heap.make_ringed<UniqueIterator>(0, input, std::move(path), case_sensitive));
}

Result<Value> batch(Run& run, const Value& input, Values& arguments) {
  TRY(int64_t size, to_integer(arguments[0], "linecount"));
  return Value(run.heap.make_ringed<BatchIterator>(0, input, size, arguments[1]));
}

Result<Value> slice(Run& run, const Value& input, Values& arguments) {
  TRY(int64_t count, to_integer(arguments[0], "slices"));
  return Value(run.heap.make_ringed<SliceIterator>(0, input, count, arguments[1]));
}

Result<Value> items(Run& run, const Value& input, Values&) { return Value(run.heap.make<ItemsIterator>(0, input)); }

const FilterEntry kFilters[] = {
    {"map", {}, 0, nullptr, map},
    {"select", {}, 0, nullptr, select<true, false>},
    {"reject", {}, 0, nullptr, select<false, false>},
    {"selectattr", {}, 0, nullptr, select<true, true>},
    {"rejectattr", {}, 0, nullptr, select<false, true>},
    {"unique", {"case_sensitive", "attribute"}, 0, unique},
    {"batch", {"linecount", "fill_with"}, 1, batch},
    {"slice", {"slices", "fill_with"}, 1, slice},
    {"items", {}, 0, items},
};

}  // namespace

std::span<const FilterEntry> lazy_filters() { return kFilters; }

}  // namespace millrace::jinja
