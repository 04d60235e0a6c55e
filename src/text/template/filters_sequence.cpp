// Filters over sequences that need them whole.
#include "text/template/access.h"
#include "text/template/code_points.h"
#include "text/template/convert.h"
#include "text/template/filters.h"
#include "text/template/iterate.h"
#include "text/template/operators.h"
#include "text/template/sort.h"

namespace millrace::jinja {
namespace {

// What sorting and grouping compare: texts in lower case unless case matters.
Result<Value> comparable(Run& run, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is_text()) return value;
  TRY_VOID(run.read_bytes(text_of(value).size()));
  return run.heap.text(lower(text_of(value)));
}

Result<Value> length_filter(Run& run, const Value& input, Values&) {
  TRY(int64_t count, length(run, input));
  return Value::integer(count);
}

Result<Value> list_filter(Run& run, const Value& input, Values&) {
  TRY(Values items, collect(run, input));
  return run.heap.list(std::move(items));
}

Result<Value> first(Run& run, const Value& input, Values&) {
  TRY(Ref<Iterator> iterator, iterate(run, input));
  TRY(Value item, iterator->next(run));
  return item.is_missing() ? undefined_hint(run, "No first item, sequence was empty.") : item;
}

Result<Value> last(Run& run, const Value& input, Values&) {
  if (input.is_text()) {
    const std::string& text = text_of(input);
    if (text.empty()) return undefined_hint(run, "No last item, sequence was empty.");
    size_t start = text.size();
    previous_code_point(text, start);
    return run.heap.text(text.substr(start), input.as<Text>().markup);
  }
  TRY(Value backwards, reversed(run, input));
  if (backwards.is_missing()) return fail("'{}' object is not reversible", type_name(input));
  TRY(Value item, backwards.as<Iterator>().next(run));
  return item.is_missing() ? undefined_hint(run, "No last item, sequence was empty.") : item;
}

Result<Value> reverse(Run& run, const Value& input, Values&) {
  if (input.is_text()) return get_slice(run, input, Value(), Value(), Value::integer(-1));
  TRY(Value backwards, reversed(run, input));
  if (!backwards.is_missing()) return backwards;
  if (!is_iterable(input)) return fail("argument must be iterable");
  TRY(Values items, collect(run, input));
  std::reverse(items.begin(), items.end());
  return run.heap.list(std::move(items));
}

Result<Value> join(Run& run, const Value& input, Values& arguments) {
  TRY(std::string separator, to_str(run, arguments[0]));
  TRY(AttributePath path, AttributePath::parse(run, arguments[1]));
  std::string out;
  bool is_first = true;
  TRY_VOID(for_each(run, input, [&](Value item) -> Result<void> {
    TRY(item, path.get(run, item));
    if (!is_first) out += separator;
    is_first = false;
    TRY_VOID(run.move_bytes(separator.size()));
    TRY(std::string text, to_str(run, item));
    out += text;
    return run.room_for(out.size());
  }));
  return run.heap.text(std::move(out));
}

// The keys `sort` compares: a list of the values of each attribute named, for every item.
Result<Values> sort_keys(Run& run, const Values& items, const Value& attribute, bool case_sensitive) {
  std::vector<AttributePath> paths;
  if (attribute.is_text()) {
    std::string_view names = text_of(attribute);
    for (size_t start = 0; start <= names.size();) {
      size_t end = std::min(names.find(',', start), names.size());
      TRY(AttributePath path, AttributePath::parse_part(run, names.substr(start, end - start)));
      paths.push_back(std::move(path));
      start = end + 1;
    }
  } else {
    TRY(AttributePath path, AttributePath::parse(run, attribute));
    paths.push_back(std::move(path));
  }
  Values keys;
  for (const Value& item : items) {
    Values parts;
    for (const AttributePath& path : paths) {
      TRY_VOID(run.step());
      TRY(Value part, path.get(run, item));
      TRY(part, comparable(run, part, case_sensitive));
      parts.push_back(std::move(part));
    }
    keys.push_back(run.heap.list(std::move(parts)));
  }
  return keys;
}

Result<Value> sort(Run& run, const Value& input, Values& arguments) {
  TRY(bool backwards, truthy(run, arguments[0]));
  TRY(bool case_sensitive, truthy(run, arguments[1]));
  TRY(Values items, collect(run, input));
  TRY(Values keys, sort_keys(run, items, arguments[2], case_sensitive));
  TRY(auto order, sorted_positions(run, keys, backwards));
  Values sorted;
  for (size_t i : order) sorted.push_back(items[i]);
  return run.heap.list(std::move(sorted));
}

Result<Value> dict_sort(Run& run, const Value& input, Values& arguments) {
  if (input.is_undefined()) return undefined_error(input);
  if (!input.is(Type::dict)) return fail("'{}' object has no attribute 'items'", type_name(input));
  TRY(bool case_sensitive, truthy(run, arguments[0]));
  std::string by = "key";
  if (!arguments[1].is_missing()) {
    TRY(by, to_str(run, arguments[1]));
  }
  if (by != "key" && by != "value") return fail("You can only sort by either \"key\" or \"value\"");
  TRY(bool backwards, truthy(run, arguments[2]));
  const auto& entries = input.as<Dict>().entries;
  Values keys;
  for (const auto& [key, value] : entries) {
    TRY(Value compared, comparable(run, by == "key" ? key : value, case_sensitive));
    keys.push_back(std::move(compared));
  }
  TRY(auto order, sorted_positions(run, keys, backwards));
  Values pairs;
  for (size_t i : order) pairs.push_back(run.heap.tuple({entries[i].first, entries[i].second}));
  return run.heap.list(std::move(pairs));
}

Result<Value> extreme(Run& run, const Value& input, Values& arguments, bool largest) {
  TRY(bool case_sensitive, truthy(run, arguments[0]));
  TRY(AttributePath path, AttributePath::parse(run, arguments[1]));
  Value best, best_key;
  TRY_VOID(for_each(run, input, [&](Value item) -> Result<void> {
    TRY(Value key, path.get(run, item));
    TRY(key, comparable(run, key, case_sensitive));
    bool better = best.is_missing();
    if (!better) {
      TRY(better, largest ? less(run, best_key, key) : less(run, key, best_key));
    }
    if (better) {
      best = std::move(item);
      best_key = std::move(key);
    }
    return {};
  }));
  return best.is_missing() ? undefined_hint(run, "No aggregated item, sequence was empty.") : best;
}

Result<Value> sum(Run& run, const Value& input, Values& arguments) {
  TRY(AttributePath path, AttributePath::parse(run, arguments[0]));
  Value total = arguments[1].is_missing() ? Value::integer(0) : arguments[1];
  if (total.is_text()) return fail("sum() can't sum strings [use ''.join(seq) instead]");
  TRY_VOID(for_each(run, input, [&](Value item) -> Result<void> {
    TRY(item, path.get(run, item));
    TRY(total, binary(run, BinaryOperator::add, total, item));
    return {};
  }));
  return total;
}

Result<Value> group_by(Run& run, const Value& input, Values& arguments) {
  TRY(AttributePath path, AttributePath::parse(run, arguments[0]));
  const Value& otherwise = arguments[1];
  TRY(bool case_sensitive, truthy(run, arguments[2]));
  TRY(Values items, collect(run, input));
  Values keys;
  for (const Value& item : items) {
    TRY(Value key, path.get(run, item, otherwise));
    TRY(key, comparable(run, key, case_sensitive));
    keys.push_back(std::move(key));
  }
  TRY(auto order, sorted_positions(run, keys, false));
  Values groups;
  for (size_t i = 0; i < order.size();) {
    Values members;
    const Value& key = keys[order[i]];
    TRY(Value shown, path.get(run, items[order[i]], otherwise));
    bool same = true;
    while (same) {
      members.push_back(items[order[i++]]);
      if (i >= order.size()) break;
      TRY(same, equal(run, keys[order[i]], key));
    }
    groups.push_back(run.heap.tuple({std::move(shown), run.heap.list(std::move(members))}, true));
  }
  return run.heap.list(std::move(groups));
}

Result<Value> attribute(Run& run, const Value& input, Values& arguments) {
  TRY(std::string_view name, to_text(arguments[0], "the name of an attribute"));
  if (input.is_undefined()) return undefined_error(input);
  TRY(Value found, find_attribute(run, input, name));
  return found.is_missing() ? undefined_attribute(run, input, name) : found;
}

Result<Value> random(Run&, const Value&, Arguments&) {
  return error(Code::unsupported, "the filter 'random' is not supported: the same chat must give the same prompt");
}

const FilterEntry kFilters[] = {
    {"length", {}, 0, length_filter},
    {"count", {}, 0, length_filter},
    {"list", {}, 0, list_filter},
    {"first", {}, 0, first},
    {"last", {}, 0, last},
    {"reverse", {}, 0, reverse},
    {"join", {"d", "attribute"}, 0, join},
    {"sort", {"reverse", "case_sensitive", "attribute"}, 0, sort},
    {"dictsort", {"case_sensitive", "by", "reverse"}, 0, dict_sort},
    {"min",
     {"case_sensitive", "attribute"},
     0,
     [](Run& run, const Value& input, Values& arguments) { return extreme(run, input, arguments, false); }},
    {"max",
     {"case_sensitive", "attribute"},
     0,
     [](Run& run, const Value& input, Values& arguments) { return extreme(run, input, arguments, true); }},
    {"sum", {"attribute", "start"}, 0, sum},
    {"groupby", {"attribute", "default", "case_sensitive"}, 1, group_by},
    {"attr", {"name"}, 1, attribute},
    {"random", {}, 0, nullptr, random},
};

}  // namespace

std::span<const FilterEntry> sequence_filters() { return kFilters; }

}  // namespace millrace::jinja
