#include "text/template/globals.h"

#include <algorithm>

#include "text/template/convert.h"
#include "text/template/iterate.h"

namespace millrace::jinja {
namespace {

Result<Value> range(Run& run, const Value&, Arguments& arguments) {
  TRY_VOID(positional_only("range", arguments, 1, 3));
  int64_t bounds[3] = {0, 0, 1};
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    TRY(bounds[i], to_integer(arguments.positional[i], "an argument of range"));
  }
  if (arguments.positional.size() == 1) std::swap(bounds[0], bounds[1]);
  const auto [start, stop, step] = bounds;
  if (step == 0) return fail("range() arg 3 must not be zero");
  uint64_t count = 0;
  if (step > 0 ? start < stop : start > stop) {
    uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                 : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
    uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
    count = (distance - 1) / stride + 1;
  }
  if (count > static_cast<uint64_t>(std::max<int64_t>(run.limits.range_items, 0))) {
    return fail("a range of {} items is larger than the limit of {}", count, run.limits.range_items);
  }
  return Value(run.heap.make<Range>(0, start, stop, step, static_cast<int64_t>(count)));
}

// What dict() and namespace() take: a dict or pairs, then keywords.
Result<std::vector<Dict::Entry>> entries_from(Run& run, std::string_view what, Arguments& arguments) {
  if (arguments.positional.size() > 1) {
    return fail("{} expected at most 1 argument, got {}", what, arguments.positional.size());
  }
  std::vector<Dict::Entry> entries;
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is(Type::dict)) {
      TRY_VOID(run.step(source.as<Dict>().entries.size()));
      TRY_VOID(run.room_for(source.as<Dict>().entries.size() * sizeof(Dict::Entry)));
      entries = source.as<Dict>().entries;
    } else {
      TRY_VOID(for_each(run, source, [&](Value item) -> Result<void> {
        TRY(Values pair, collect(run, item));
        if (pair.size() != 2) {
          return fail("dictionary update sequence element #{} has length {}; 2 is required", entries.size(),
                      pair.size());
        }
        entries.emplace_back(std::move(pair[0]), std::move(pair[1]));
        return run.room_for(entries.size() * sizeof(Dict::Entry));
      }));
    }
  }
  for (auto& [name, value] : arguments.named) entries.emplace_back(run.heap.text(name), std::move(value));
  return entries;
}

Result<Value> dict(Run& run, const Value&, Arguments& arguments) {
  TRY(auto entries, entries_from(run, "dict", arguments));
  return make_dict(run, std::move(entries));
}

Result<Value> name_space(Run& run, const Value&, Arguments& arguments) {
  TRY(auto entries, entries_from(run, "namespace", arguments));
  TRY(Value unique, make_dict(run, std::move(entries)));
  auto made = run.heap.make_ringed<Space>(0);
  for (const auto& [key, value] : unique.as<Dict>().entries) {
    TRY(std::string name, to_str(run, key));
    constexpr uint64_t kAttributeBytes = 160;
    TRY_VOID(run.room_for((made->attributes.size() + 1) * kAttributeBytes));
    made->set(name, value);
  }
  return Value(made);
}

Result<Value> cycler(Run& run, const Value&, Arguments& arguments) {
  TRY_VOID(no_keywords("cycler", arguments));
  if (arguments.positional.empty()) return fail("at least one item has to be provided");
  size_t bytes = arguments.positional.size() * sizeof(Value);
  return Value(run.heap.make<Cycler>(bytes, std::move(arguments.positional)));
}

Result<Value> joiner(Run& run, const Value&, Arguments& arguments) {
  static constexpr std::string_view kParameters[] = {"sep"};
  TRY(Values values, bind_arguments("joiner", arguments, kParameters, 0));
  return Value(run.heap.make<Joiner>(0, values[0].is_missing() ? run.heap.text(", ") : values[0]));
}

Result<Value> raise_exception(Run& run, const Value&, Arguments& arguments) {
  static constexpr std::string_view kParameters[] = {"message"};
  TRY(Values values, bind_arguments("raise_exception", arguments, kParameters, 1));
  TRY(std::string message, to_str(run, values[0]));
  return fail("the template raised an error: {}", message);
}

Result<Value> strftime_now(Run& run, const Value&, Arguments& arguments) {
  static constexpr std::string_view kParameters[] = {"format"};
  TRY(Values values, bind_arguments("strftime_now", arguments, kParameters, 1));
  TRY(std::string_view format, to_text(values[0], "the format of strftime_now"));
  constexpr size_t kMaxGrowth = 64;  // bytes that one byte of a format can become
  TRY_VOID(run.read_bytes(format.size() * kMaxGrowth));
  TRY_VOID(run.room_for(format.size() * kMaxGrowth));
  return run.heap.text(format_time(run.now, format));
}

Result<Value> lipsum(Run&, const Value&, Arguments&) {
  return error(Code::unsupported, "lipsum() is not supported: the same chat must give the same prompt");
}

constexpr Builtin kGlobals[] = {
    {"range", range},
    {"dict", dict},
    {"namespace", name_space},
    {"cycler", cycler},
    {"joiner", joiner},
    {"lipsum", lipsum},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
};

}  // namespace

Value find_global(Run& run, std::string_view name) {
  for (const Builtin& each : kGlobals) {
    if (each.name == name) return bound(run, each, Value());
  }
  return Value();
}

}  // namespace millrace::jinja
