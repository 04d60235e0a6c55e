#include "text/template/pretty.h"

#include "text/template/code_points.h"
#include "text/template/convert.h"
#include "text/template/methods.h"
#include "text/template/operators.h"
#include "text/template/sort.h"

namespace millrace::jinja {
namespace {

constexpr int64_t kWidth = 80;

// pprint orders the keys of dicts; keys that cannot be compared go by the name of their type.
Result<bool> key_before(Run& run, const Value& a, const Value& b) {
  bool comparable = (a.is_number() && b.is_number()) || a.type() == b.type();
  if (comparable && (a.is_number() || a.is_text() || a.is(Type::tuple))) {
    auto before = less(run, a, b);
    if (before.ok()) return before;
  }
  TRY_VOID(run.step());
  return type_name(a) < type_name(b);
}

Result<std::vector<Dict::Entry>> ordered(Run& run, const std::vector<Dict::Entry>& entries) {
  TRY(auto order, merge_sort(run, entries.size(),
                             [&](size_t i, size_t j) { return key_before(run, entries[i].first, entries[j].first); }));
  std::vector<Dict::Entry> sorted;
  for (size_t i : order) sorted.push_back(entries[i]);
  return sorted;
}

class PrettyPrinter {
 public:
  explicit PrettyPrinter(Run& run) : run_(run) {}

  Result<void> format(const Value& value, int64_t indent, int64_t allowance, int level) {
    ENTER_LEVEL(run_);
    TRY(std::string repr, sorted_repr(value));
    TRY_VOID(run_.room_for(out.size() + repr.size()));
    if (static_cast<int64_t>(count_code_points(repr)) > kWidth - indent - allowance) {
      if (value.is(Type::dict)) return format_dict(value.as<Dict>(), indent, allowance, level + 1);
      if (value.is(Type::list) || value.is(Type::tuple)) return format_items(value, indent, allowance, level + 1);
      if (value.is_text() && !value.as<Text>().markup) return format_text(value, indent, allowance, level + 1);
    }
    out += repr;
    return {};
  }

  std::string out;

 private:
  // repr() with the keys of dicts in order.
  Result<std::string> sorted_repr(const Value& value) {
    ENTER_LEVEL(run_);
    TRY_VOID(run_.step());
    std::string text;
    if (value.is(Type::dict)) {
      TRY(auto entries, ordered(run_, value.as<Dict>().entries));
      for (const auto& [key, item] : entries) {
        TRY(std::string key_text, sorted_repr(key));
        TRY(std::string item_text, sorted_repr(item));
        text += (text.empty() ? "" : ", ") + key_text + ": " + item_text;
        TRY_VOID(run_.room_for(text.size()));
      }
      return "{" + text + "}";
    }
    if (value.is(Type::list) || value.is(Type::tuple)) {
      const Values& items = items_of(value);
      for (const Value& item : items) {
        TRY(std::string item_text, sorted_repr(item));
        text += (text.empty() ? "" : ", ") + item_text;
        TRY_VOID(run_.room_for(text.size()));
      }
      if (value.is(Type::list)) return "[" + text + "]";
      return "(" + text + (items.size() == 1 ? ",)" : ")");
    }
    return to_repr(run_, value);
  }

  std::string line_break(int64_t indent) {
    return "\n" + std::string(static_cast<size_t>(std::max<int64_t>(indent, 0)), ' ');
  }

  Result<void> format_dict(const Dict& dict, int64_t indent, int64_t allowance, int level) {
    TRY(auto entries, ordered(run_, dict.entries));
    out += '{';
    ++indent;
    for (size_t i = 0; i < entries.size(); ++i) {
      const bool last = i + 1 == entries.size();
      TRY(std::string key, sorted_repr(entries[i].first));
      out += key + ": ";
      int64_t inner = indent + static_cast<int64_t>(count_code_points(key)) + 2;
      TRY_VOID(run_.room_for(static_cast<uint64_t>(inner)));
      TRY_VOID(format(entries[i].second, inner, last ? allowance + 1 : 1, level));
      if (!last) out += "," + line_break(indent);
    }
    out += '}';
    return {};
  }

  Result<void> format_items(const Value& value, int64_t indent, int64_t allowance, int level) {
    const Values& items = items_of(value);
    const std::string end = value.is(Type::list) ? "]" : items.size() == 1 ? ",)" : ")";
    out += value.is(Type::list) ? '[' : '(';
    ++indent;
    for (size_t i = 0; i < items.size(); ++i) {
      const bool last = i + 1 == items.size();
      if (i > 0) out += "," + line_break(indent);
      TRY_VOID(format(items[i], indent, last ? allowance + static_cast<int64_t>(end.size()) : 1, level));
    }
    out += end;
    return {};
  }

  // Runs of non-spaces with the spaces behind them.
  static std::vector<std::string_view> words_with_spaces(std::string_view line) {
    std::vector<std::string_view> parts;
    size_t start = 0;
    bool in_spaces = false;
    for (size_t i = 0; i < line.size();) {
      size_t at = i;
      bool space = is_space(next_code_point(line, i));
      if (in_spaces && !space) {
        parts.push_back(line.substr(start, at - start));
        start = at;
      }
      in_spaces = space;
    }
    if (start < line.size()) parts.push_back(line.substr(start));
    return parts;
  }

  static int64_t repr_length(std::string_view text) { return static_cast<int64_t>(count_code_points(text_repr(text))); }

  Result<void> format_text(const Value& value, int64_t indent, int64_t allowance, int level) {
    auto lines = split_lines(text_of(value), true);
    if (level == 1) {
      ++indent;
      ++allowance;
    }
    const int64_t width = kWidth - indent;
    std::vector<std::string> chunks;
    for (size_t i = 0; i < lines.size(); ++i) {
      const bool last_line = i + 1 == lines.size();
      TRY_VOID(run_.read_bytes(lines[i].size() * 4));
      if (repr_length(lines[i]) <= width - (last_line ? allowance : 0)) {
        chunks.push_back(text_repr(lines[i]));
        continue;
      }
      auto parts = words_with_spaces(lines[i]);
      std::string current;
      for (size_t j = 0; j < parts.size(); ++j) {
        TRY_VOID(run_.step());
        std::string candidate = current + std::string(parts[j]);
        int64_t fits = width - (j + 1 == parts.size() && last_line ? allowance : 0);
        if (repr_length(candidate) > fits) {
          if (!current.empty()) chunks.push_back(text_repr(current));
          current = parts[j];
        } else {
          current = std::move(candidate);
        }
      }
      if (!current.empty()) chunks.push_back(text_repr(current));
    }
    if (chunks.size() == 1) return out += text_repr(lines.back()), Result<void>();
    if (level == 1) out += '(';
    for (size_t i = 0; i < chunks.size(); ++i) out += (i > 0 ? line_break(indent) : "") + chunks[i];
    if (level == 1) out += ')';
    return run_.room_for(out.size());
  }

  Run& run_;
};

}  // namespace

Result<std::string> pretty_repr(Run& run, const Value& value) {
  PrettyPrinter printer(run);
  TRY_VOID(printer.format(value, 0, 0, 0));
  return std::move(printer.out);
}

}  // namespace millrace::jinja
