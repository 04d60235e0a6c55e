#include "text/template/methods.h"

#include <algorithm>
#include <cmath>

#include "text/template/convert.h"
#include "text/template/iterate.h"
#include "text/template/operators.h"

namespace millrace::jinja {
namespace {

Result<Value> dict_get(Run& run, const Value& self, Arguments& arguments) {
  TRY_VOID(positional_only("get", arguments, 1, 2));
  TRY_VOID(check_key(run, arguments.positional[0]));
  if (const Value* found = self.as<Dict>().find(arguments.positional[0])) return *found;
  return arguments.positional.size() > 1 ? arguments.positional[1] : Value::none();
}

Result<Value> dict_view(Run& run, const Value& self, Arguments& arguments, View::Kind part) {
  TRY_VOID(positional_only(part == View::Kind::keys     ? "keys"
                           : part == View::Kind::values ? "values"
                                                        : "items",
                           arguments, 0, 0));
  return Value(run.heap.make<View>(0, Ref<Dict>(&self.as<Dict>()), part));
}

Result<Value> dict_from_keys(Run& run, const Value&, Arguments& arguments) {
  TRY_VOID(positional_only("fromkeys", arguments, 1, 2));
  Value value = arguments.positional.size() > 1 ? arguments.positional[1] : Value::none();
  std::vector<Dict::Entry> entries;
  TRY_VOID(for_each(run, arguments.positional[0], [&](Value key) -> Result<void> {
    entries.emplace_back(std::move(key), value);
    return run.room_for(entries.size() * sizeof(Dict::Entry));
  }));
  return make_dict(run, std::move(entries));
}

constexpr Builtin kDictMethods[] = {
    {"get", dict_get},
    {"keys", [](Run& run, const Value& self, Arguments& args) { return dict_view(run, self, args, View::Kind::keys); }},
    {"values",
     [](Run& run, const Value& self, Arguments& args) { return dict_view(run, self, args, View::Kind::values); }},
    {"items",
     [](Run& run, const Value& self, Arguments& args) { return dict_view(run, self, args, View::Kind::items); }},
    {"copy",
     [](Run&, const Value& self, Arguments& args) -> Result<Value> {
       TRY_VOID(positional_only("copy", args, 0, 0));
       return self;
     }},
    {"fromkeys", dict_from_keys},
};

Result<Value> sequence_count(Run& run, const Value& self, Arguments& arguments) {
  TRY_VOID(positional_only("count", arguments, 1, 1));
  int64_t count = 0;
  for (const Value& item : items_of(self)) {
    TRY(bool same, equal(run, item, arguments.positional[0]));
    count += same ? 1 : 0;
  }
  return Value::integer(count);
}

Result<Value> sequence_index(Run& run, const Value& self, Arguments& arguments) {
  TRY_VOID(positional_only("index", arguments, 1, 3));
  const Values& items = items_of(self);
  auto size = static_cast<int64_t>(items.size());
  auto bound = [&](size_t i, int64_t otherwise) -> Result<int64_t> {
    if (arguments.positional.size() <= i) return otherwise;
    TRY(int64_t given, to_integer(arguments.positional[i], "the index"));
    return std::clamp<int64_t>(given < 0 ? given + size : given, 0, size);
  };
  TRY(int64_t start, bound(1, 0));
  TRY(int64_t stop, bound(2, size));
  for (int64_t i = start; i < stop; ++i) {
    TRY(bool same, equal(run, items[static_cast<size_t>(i)], arguments.positional[0]));
    if (same) return Value::integer(i);
  }
  TRY(std::string repr, to_repr(run, arguments.positional[0]));
  return fail("{} is not in {}", repr, type_name(self));
}

Result<Value> list_copy(Run&, const Value& self, Arguments& arguments) {
  TRY_VOID(positional_only("copy", arguments, 0, 0));
  return self;
}

constexpr Builtin kSequenceMethods[] = {{"count", sequence_count}, {"index", sequence_index}, {"copy", list_copy}};

Result<Value> range_count(Run& run, const Value& self, Arguments& arguments) {
  TRY_VOID(positional_only("count", arguments, 1, 1));
  TRY(bool inside, contains(run, self, arguments.positional[0]));
  return Value::integer(inside ? 1 : 0);
}

constexpr Builtin kRangeMethods[] = {{"count", range_count}};

Result<Value> view_is_disjoint(Run& run, const Value& self, Arguments& arguments) {
  TRY_VOID(positional_only("isdisjoint", arguments, 1, 1));
  bool disjoint = true;
  TRY_VOID(for_each(run, arguments.positional[0], [&](Value item) -> Result<void> {
    TRY(bool inside, contains(run, self, item));
    disjoint = disjoint && !inside;
    return {};
  }));
  return Value::boolean(disjoint);
}

constexpr Builtin kViewMethods[] = {{"isdisjoint", view_is_disjoint}};

Result<Value> cycler_next(Run&, const Value& self, Arguments& arguments) {
  TRY_VOID(positional_only("next", arguments, 0, 0));
  auto& cycler = self.as<Cycler>();
  Value current = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return current;
}

Result<Value> cycler_reset(Run&, const Value& self, Arguments& arguments) {
  TRY_VOID(positional_only("reset", arguments, 0, 0));
  self.as<Cycler>().position = 0;
  return Value::none();
}

constexpr Builtin kCyclerMethods[] = {{"next", cycler_next}, {"reset", cycler_reset}};

Result<Value> bit_length(Run&, const Value& self, Arguments& arguments) {
  TRY_VOID(positional_only("bit_length", arguments, 0, 0));
  int64_t value = self.as_integer();
  uint64_t size = value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  return Value::integer(size == 0 ? 0 : 64 - __builtin_clzll(size));
}

Result<Value> is_integer(Run&, const Value& self, Arguments& arguments) {
  TRY_VOID(positional_only("is_integer", arguments, 0, 0));
  double value = self.as_real();
  return Value::boolean(std::isfinite(value) && std::floor(value) == value);
}

Result<Value> conjugate(Run& run, const Value& self, Arguments& arguments) {
  TRY_VOID(positional_only("conjugate", arguments, 0, 0));
  return unary(run, UnaryOperator::positive, self);
}

constexpr Builtin kIntegerMethods[] = {{"bit_length", bit_length}, {"conjugate", conjugate}};
constexpr Builtin kRealMethods[] = {{"is_integer", is_integer}, {"conjugate", conjugate}};

const Builtin* find_in(std::span<const Builtin> methods, std::string_view name) {
  auto found = std::find_if(methods.begin(), methods.end(), [&](const Builtin& each) { return each.name == name; });
  return found == methods.end() ? nullptr : &*found;
}

const Builtin* find_builtin(const Value& self, std::string_view name) {
  switch (self.type()) {
    case Type::text:
      for (auto methods : {text_search_methods(), text_split_methods(), text_shape_methods()}) {
        if (const Builtin* found = find_in(methods, name)) return found;
      }
      return nullptr;
    case Type::dict:
      return find_in(kDictMethods, name);
    case Type::list:
      return find_in(kSequenceMethods, name);
    case Type::tuple:
      return name == "copy" ? nullptr : find_in(kSequenceMethods, name);
    case Type::range:
      return find_in(kRangeMethods, name);
    case Type::view:
      return self.as<View>().part == View::Kind::values ? nullptr : find_in(kViewMethods, name);
    case Type::cycler:
      return find_in(kCyclerMethods, name);
    case Type::boolean:
    case Type::integer:
      return find_in(kIntegerMethods, name);
    case Type::real:
      return find_in(kRealMethods, name);
    case Type::function:
      // The class dict has one method that is of use.
      if (self.as<Function>().builtin->name == "dict" && name == "fromkeys") return find_in(kDictMethods, name);
      return nullptr;
    default:
      return nullptr;
  }
}

// Attributes that are no methods.
Result<Value> plain_attribute(Run& run, const Value& self, std::string_view name) {
  switch (self.type()) {
    case Type::boolean:
    case Type::integer:
      if (name == "real" || name == "numerator") return Value::integer(self.as_integer());
      if (name == "imag") return Value::integer(0);
      if (name == "denominator") return Value::integer(1);
      return Value();
    case Type::real:
      if (name == "real") return self;
      if (name == "imag") return Value::real(0);
      return Value();
    case Type::range:
      if (name == "start") return Value::integer(self.as<Range>().start);
      if (name == "stop") return Value::integer(self.as<Range>().stop);
      if (name == "step") return Value::integer(self.as<Range>().step);
      return Value();
    case Type::tuple:
      if (self.as<Tuple>().is_group && name == "grouper") return self.as<Tuple>().items[0];
      if (self.as<Tuple>().is_group && name == "list") return self.as<Tuple>().items[1];
      return Value();
    case Type::cycler: {
      const auto& cycler = self.as<Cycler>();
      if (name == "current") return cycler.items[cycler.position];
      if (name == "pos") return Value::integer(static_cast<int64_t>(cycler.position));
      if (name == "items") return run.heap.tuple(cycler.items);
      return Value();
    }
    case Type::joiner:
      if (name == "sep") return self.as<Joiner>().separator;
      if (name == "used") return Value::boolean(self.as<Joiner>().used);
      return Value();
    default:
      return Value();
  }
}

}  // namespace

Result<Value> find_method(Run& run, const Value& self, std::string_view name) {
  if (const Builtin* builtin = find_builtin(self, name)) return bound(run, *builtin, self);
  return plain_attribute(run, self, name);
}

bool changes_list(std::string_view name) { return name == "append" || name == "pop"; }

Result<ChangedList> changed_list(Run& run, const List& list, std::string_view name, Arguments& arguments) {
  const bool appends = name == "append";
  TRY_VOID(positional_only(name, arguments, appends ? 1 : 0, 1));
  TRY_VOID(run.reserve((list.items.size() + 1) * sizeof(Value)));
  Values items = list.items;
  if (appends) {
    items.push_back(arguments.positional[0]);
    return ChangedList{run.heap.list(std::move(items)), Value::none()};
  }
  const auto size = static_cast<int64_t>(items.size());
  int64_t at = size - 1;
  if (!arguments.positional.empty()) {
    if (!arguments.positional[0].is_integral())
      return fail("'{}' object cannot be interpreted as an integer", type_name(arguments.positional[0]));
    at = arguments.positional[0].as_integer();
    if (at < 0) at += size;
  }
  if (size == 0) return fail("pop from empty list");
  if (at < 0 || at >= size) return fail("pop index out of range");
  Value taken = items[static_cast<size_t>(at)];
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(at));
  return ChangedList{run.heap.list(std::move(items)), std::move(taken)};
}

bool is_mutator(const Value& self, std::string_view name) {
  static constexpr std::string_view kList[] = {"append", "clear",  "extend",  "insert",
                                               "pop",    "remove", "reverse", "sort"};
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (self.is(Type::list)) return std::find(std::begin(kList), std::end(kList), name) != std::end(kList);
  if (self.is(Type::dict)) return std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
  return false;
}

}  // namespace millrace::jinja
