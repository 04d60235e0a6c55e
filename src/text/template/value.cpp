#include "text/template/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "text/template/code_points.h"

namespace millrace::jinja {

Value Value::natural(uint64_t value) {
  if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return integer(static_cast<int64_t>(value));
  return Value(Type::natural, Data{.natural = value});
}

size_t Text::length() const {
  if (length_ == std::numeric_limits<size_t>::max()) length_ = count_code_points(bytes_utf8);
  return length_;
}

Dict::Dict(std::vector<Entry> pairs) : Object(Type::dict), entries(std::move(pairs)) {
  by_key_.resize(entries.size());
  std::iota(by_key_.begin(), by_key_.end(), 0u);
  auto before = [&](uint32_t a, uint32_t b) { return compare_keys(entries[a].first, entries[b].first) < 0; };
  std::stable_sort(by_key_.begin(), by_key_.end(), before);
  bool duplicates = false;
  for (size_t i = 1; i < by_key_.size(); ++i) {
    Entry& earlier = entries[by_key_[i - 1]];
    Entry& later = entries[by_key_[i]];
    if (compare_keys(earlier.first, later.first) != 0) continue;
    earlier.second = std::move(later.second);
    later.first = Value();
    by_key_[i] = by_key_[i - 1];
    duplicates = true;
  }
  if (!duplicates) return;
  std::erase_if(entries, [](const Entry& entry) { return entry.first.is_missing(); });
  by_key_.resize(entries.size());
  std::iota(by_key_.begin(), by_key_.end(), 0u);
  std::stable_sort(by_key_.begin(), by_key_.end(), before);
}

const Value* Dict::find(const Value& key) const {
  auto found = std::lower_bound(by_key_.begin(), by_key_.end(), key,
                                [&](uint32_t i, const Value& k) { return compare_keys(entries[i].first, k) < 0; });
  if (found == by_key_.end() || compare_keys(entries[*found].first, key) != 0) return nullptr;
  return &entries[*found].second;
}

const Value* Dict::find(std::string_view key) const {
  auto compare = [&](uint32_t i) {
    const Value& mine = entries[i].first;
    if (!mine.is_text()) return mine.type() < Type::text ? -1 : 1;
    return text_of(mine).compare(key);
  };
  auto found = std::lower_bound(by_key_.begin(), by_key_.end(), key,
                                [&](uint32_t i, std::string_view) { return compare(i) < 0; });
  if (found == by_key_.end() || compare(*found) != 0) return nullptr;
  return &entries[*found].second;
}

std::string Undefined::message() const {
  if (!hint.empty()) return hint;
  if (object_type.empty()) return fmt::format("'{}' is undefined", name);
  if (!key_is_text) return fmt::format("{} has no element {}", object_type, name);
  return fmt::format("'{}' has no attribute '{}'", object_type, name);
}

const Value* Space::find(std::string_view name) const {
  auto found = index_.find(name);
  return found == index_.end() ? nullptr : &attributes[found->second].second;
}

void Space::set(std::string_view name, Value value) {
  auto [entry, is_new] = index_.try_emplace(std::string(name), attributes.size());
  if (is_new) {
    attributes.emplace_back(name, std::move(value));
  } else {
    attributes[entry->second].second = std::move(value);
  }
}

Heap::~Heap() {
  std::vector<Ref<Object>> rings;
  rings.reserve(ringed_.size());
  for (Object* object : ringed_) rings.emplace_back(object);
  for (auto& object : rings) object->let_go();
  rings.clear();
  CHECK(live_ == 0, "{} bytes of template values outlive their heap", live_);
}

void Heap::adopt(Object* object, size_t bytes) {
  object->heap = this;
  object->bytes = bytes;
  live_ += bytes;
}

void Heap::enlist(Object* object) {
  object->ring_index = static_cast<uint32_t>(ringed_.size());
  ringed_.push_back(object);
}

// Freeing an object releases what it refers to; those wait in a list here instead of being freed from within.
void Heap::retire(Object* object) {
  object->next_dead = dead_;
  dead_ = object;
  if (draining_) return;
  draining_ = true;
  while (dead_ != nullptr) {
    Object* dying = dead_;
    dead_ = dying->next_dead;
    live_ -= dying->bytes;
    if (dying->ring_index < ringed_.size() && ringed_[dying->ring_index] == dying) {
      ringed_[dying->ring_index] = ringed_.back();
      ringed_[dying->ring_index]->ring_index = dying->ring_index;
      ringed_.pop_back();
    }
    delete dying;
  }
  draining_ = false;
}

Value Heap::text(std::string text, bool markup) {
  size_t bytes = text.size();
  return make<Text>(bytes, std::move(text), markup);
}

Value Heap::list(Values items) {
  size_t bytes = items.size() * sizeof(Value);
  return make<List>(bytes, std::move(items));
}

Value Heap::tuple(Values items, bool group) {
  size_t bytes = items.size() * sizeof(Value);
  return make<Tuple>(bytes, std::move(items), group);
}

Value Heap::dict(std::vector<Dict::Entry> entries) {
  size_t bytes = entries.size() * (sizeof(Dict::Entry) + sizeof(uint32_t));
  return make<Dict>(bytes, std::move(entries));
}

namespace {

int sign(bool less, bool greater) { return less ? -1 : greater ? 1 : 0; }

int compare_integer_with_real(int64_t integer, double real) {
  if (std::isnan(real)) return -1;
  if (real >= 9223372036854775808.0) return -1;
  if (real < -9223372036854775808.0) return 1;
  double whole = std::trunc(real);
  auto truncated = static_cast<int64_t>(whole);
  if (integer != truncated) return integer < truncated ? -1 : 1;
  return sign(real > whole, real < whole);
}

// Types that compare as one class when they are keys, in the order of those classes.
int key_class(const Value& value) {
  if (value.is_number()) return static_cast<int>(Type::integer);
  return static_cast<int>(value.type());
}

}  // namespace

int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    return sign(a.as_integer() < b.as_integer(), a.as_integer() > b.as_integer());
  }
  if (a.is(Type::real) && b.is(Type::real)) {
    double x = a.as_real(), y = b.as_real();
    if (std::isnan(x) || std::isnan(y)) return sign(!std::isnan(x), !std::isnan(y));
    return sign(x<y, x> y);
  }
  if (a.is(Type::natural) && b.is(Type::natural)) {
    return sign(a.as_natural() < b.as_natural(), a.as_natural() > b.as_natural());
  }
  if (a.is(Type::natural)) {
    if (!b.is(Type::real)) return 1;
    double y = b.as_real();
    if (std::isnan(y) || y >= 18446744073709551616.0) return -1;
    if (y < 9223372036854775808.0) return 1;
    auto whole = static_cast<uint64_t>(y);  // a double this large has no fraction
    return sign(a.as_natural() < whole, a.as_natural() > whole);
  }
  if (b.is(Type::natural)) return -compare_numbers(b, a);
  if (a.is(Type::real)) return -compare_integer_with_real(b.as_integer(), a.as_real());
  return compare_integer_with_real(a.as_integer(), b.as_real());
}

int compare_keys(const Value& a, const Value& b) {
  int class_a = key_class(a), class_b = key_class(b);
  if (class_a != class_b) return class_a < class_b ? -1 : 1;
  if (a.is_number()) return compare_numbers(a, b);
  switch (a.type()) {
    case Type::missing:
    case Type::none:
    case Type::undefined:
      return 0;
    case Type::text:
      return text_of(a).compare(text_of(b));
    case Type::tuple: {
      const Values& x = a.as<Tuple>().items;
      const Values& y = b.as<Tuple>().items;
      for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
        if (int order = compare_keys(x[i], y[i]); order != 0) return order;
      }
      return sign(x.size() < y.size(), x.size() > y.size());
    }
    case Type::range: {
      const auto& x = a.as<Range>();
      const auto& y = b.as<Range>();
      if (x.count != y.count) return x.count < y.count ? -1 : 1;
      if (x.count == 0) return 0;
      if (x.start != y.start) return x.start < y.start ? -1 : 1;
      return x.count == 1 ? 0 : sign(x.step<y.step, x.step> y.step);
    }
    default:
      return sign(std::less<>()(a.object(), b.object()), std::less<>()(b.object(), a.object()));
  }
}

std::string_view type_name(const Value& value) {
  switch (value.type()) {
    case Type::missing:
      return "missing";
    case Type::none:
      return "NoneType";
    case Type::boolean:
      return "bool";
    case Type::integer:
    case Type::natural:
      return "int";
    case Type::real:
      return "float";
    case Type::text:
      return value.as<Text>().markup ? "Markup" : "str";
    case Type::list:
      return "list";
    case Type::tuple:
      return "tuple";
    case Type::dict:
      return "dict";
    case Type::undefined:
      return "Undefined";
    case Type::range:
      return "range";
    case Type::view: {
      auto part = value.as<View>().part;
      return part == View::Kind::keys ? "dict_keys" : part == View::Kind::values ? "dict_values" : "dict_items";
    }
    case Type::iterator:
      return "generator";
    case Type::space:
      return "Namespace";
    case Type::macro:
      return "Macro";
    case Type::function:
      return "function";
    case Type::loop:
      return "LoopContext";
    case Type::cycler:
      return "Cycler";
    case Type::joiner:
      return "Joiner";
    case Type::activation:
      break;
  }
  return "object";
}

}  // namespace millrace::jinja
