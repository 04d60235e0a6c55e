// Methods of Python's str, list, tuple, dict and numbers that a template may call, and of Jinja's own helpers.
#pragma once

#include <span>

#include "text/template/function.h"

namespace millrace::jinja {

// A method bound to the value, or one of its plain attributes; missing if Python has none of that name either.
Result<Value> find_method(Run& run, const Value& self, std::string_view name);
// Whether Python's method of that name changes the value, which the immutable sandbox forbids.
bool is_mutator(const Value& self, std::string_view name);

// Methods that change a list, of which a namespace that keeps it may have another one instead: append and pop.
struct ChangedList {
  Value list, result;
};
bool changes_list(std::string_view name);
Result<ChangedList> changed_list(Run& run, const List& list, std::string_view name, Arguments& arguments);

// The parts of the table of str's methods.
std::span<const Builtin> text_search_methods();
std::span<const Builtin> text_split_methods();
std::span<const Builtin> text_shape_methods();

// Python's str.replace() with a count of -1 for all, and str.split() on whitespace; filters use them too.
Result<std::string> replace_text(Run& run, std::string_view text, std::string_view from, std::string_view to,
                                 int64_t count);
std::vector<std::string_view> split_words(std::string_view text);
// Python's str.splitlines(); with keep_ends each line keeps its end.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
// Python's str.center().
Result<std::string> center_text(Run& run, std::string_view text, int64_t width, std::string_view fill);
// Python's str.strip(), on both sides or one; of whitespace if there are no characters given.
std::string_view strip_text(std::string_view text, const std::string_view* characters, bool left, bool right);

}  // namespace millrace::jinja
