#include "text/template/filters.h"

#include <algorithm>
#include <unordered_map>

namespace millrace::jinja {
namespace {

using Table = std::unordered_map<std::string_view, const FilterEntry*>;

Table make_table() {
  Table table;
  for (auto part : {text_filters(), markup_filters(), number_filters(), sequence_filters(), lazy_filters()}) {
    for (const FilterEntry& entry : part) table.emplace(entry.name, &entry);
  }
  return table;
}

}  // namespace

const FilterEntry* find_filter(std::string_view name) {
  static const Table kTable = make_table();
  auto found = kTable.find(name);
  return found == kTable.end() ? nullptr : found->second;
}

Result<Value> call_filter(Run& run, const FilterEntry& filter, const Value& input, Arguments& arguments) {
  TRY_VOID(run.step());
  if (filter.call_any != nullptr) return filter.call_any(run, input, arguments);
  auto end = std::find(filter.parameters.begin(), filter.parameters.end(), std::string_view());
  std::span<const std::string_view> parameters(filter.parameters.begin(), end);
  TRY(Values values, bind_arguments(filter.name, arguments, parameters, filter.required));
  return filter.call(run, input, values);
}

}  // namespace millrace::jinja
