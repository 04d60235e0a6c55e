#include <algorithm>
#include <charconv>
#include <optional>

#include "apps/bench/rows.h"
#include "apps/cli/flags.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/flags.h"
#include "backend/cpu/cpu.h"
#include "base/json.h"
#include "bench/op.h"
#include "machine/stolen.h"

namespace millrace::apps {
namespace {

// "2048x8192" or "32/8x64": numbers with what stands between them.
Result<std::vector<int64_t>> numbers(std::string_view text, std::string_view between) {
  std::vector<int64_t> found;
  for (size_t i = 0; i <= between.size(); ++i) {
    int64_t value = 0;
    auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc{} || value < 1 || value > 1 << 24)
      return error(Code::invalid, "'{}' is no size: write numbers with '{}' between them", text, between);
    found.push_back(value);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    bool last = i == between.size();
    if (last ? !text.empty() : text.empty() || text.front() != between[i])
      return error(Code::invalid, "a size is {} numbers with '{}' between them", between.size() + 1, between);
    if (!last) text.remove_prefix(1);
  }
  return found;
}

// "32/8x64", "16/1x576x512" (values are the first 512 numbers of keys) or "16/16x192+128" (of their own width).
Result<void> read_heads(const std::string& named, OpTest& test) {
  const bool latent = std::count(named.begin(), named.end(), 'x') == 2, own = named.find('+') != std::string::npos;
  TRY(auto heads, numbers(named, latent ? "/xx" : own ? "/x+" : "/x"));
  test.heads = static_cast<int32_t>(heads[0]), test.kv_heads = static_cast<int32_t>(heads[1]);
  test.dim = static_cast<int32_t>(heads[2]);
  if (latent) test.value_dim = static_cast<int32_t>(heads[3]);
  if (own) test.own_dim = static_cast<int32_t>(heads[3]);
  return {};
}

Result<std::vector<OpTest>> tests_of(const Arguments& arguments) {
  std::vector<OpTest> tests;
  for (const std::string& op : arguments.texts("op")) {
    for (int64_t rows : arguments.integers("rows")) {
      OpTest test = {.rows = static_cast<int32_t>(rows)};
      if (op == "attend") {
        test.kind = OpTest::Kind::attend;
        TRY_VOID(read_heads(arguments.text("heads"), test));
        test.kv = kv_form_from_name(arguments.text("kv")).value();
        test.type = test.kv.k;
        for (int64_t depth : arguments.integers("depth")) {
          test.depth = static_cast<int32_t>(depth);
          tests.push_back(test);
        }
        continue;
      }
      for (const std::string& size : arguments.texts("size")) {
        TRY(auto shape, numbers(size, "x"));
        test.outputs = shape[0], test.inputs = shape[1];
        if (op == "norm" || op == "glu") {
          test.kind = op == "norm" ? OpTest::Kind::norm : OpTest::Kind::glu;
          tests.push_back(test);
          continue;
        }
        if (op == "heads") {
          test.kind = OpTest::Kind::heads;
          TRY_VOID(read_heads(arguments.text("heads"), test));
        }
        if (op == "experts") {
          test.kind = OpTest::Kind::experts;
          TRY(auto experts, numbers(arguments.text("experts"), "/"));
          test.chosen = static_cast<int32_t>(experts[0]), test.experts = static_cast<int32_t>(experts[1]);
        }
        for (const std::string& name : arguments.texts("type")) {
          TRY(test.type, weight_format(name));
          tests.push_back(test);
        }
      }
    }
  }
  return tests;
}

// Bytes of weights or cache that are gone through before any is met again: of these two kinds there is one copy.
int64_t footprint_of(const OpResult& result, const OpBenchOptions& options) {
  const bool one = result.test.kind == OpTest::Kind::experts || result.test.kind == OpTest::Kind::heads;
  return one ? static_cast<int64_t>(result.floor.bytes) : options.footprint;
}

Result<void> measure(const Arguments& arguments, const std::vector<OpTest>& tests, const std::string& isa, int threads,
                     std::vector<OpRow>& rows) {
  bool exact = arguments.text("activations") == "float32";
  TRY(Machine machine, measure_machine({.threads = threads, .isa = isa, .remeasure = arguments.toggle("remeasure")}));
  OpBenchOptions options = {.repetitions = static_cast<int>(arguments.integer("repetitions")),
                            .fast = !exact,
                            .go_on = [] { return !Interruptible::interrupted(); }};
  const size_t first = rows.size();
  for (const OpTest& test : tests) {
    TRY(auto backend,
        make_cpu_backend(
            {.threads = threads, .isa = isa, .activations = exact ? Activations::float32 : Activations::fast}));
    std::optional<StolenTime> stolen(std::in_place);
    TRY(OpResult result, run_op_test(*backend, test, machine, options));
    if (result.floor.seconds > result.median_seconds()) {  // what it passed was no limit
      TRY(machine, measure_machine({.threads = threads, .isa = isa, .raise = true}));
      for (auto row = rows.begin() + static_cast<ptrdiff_t>(first); row != rows.end(); ++row) {  // nor was it theirs
        row->machine = machine;
        row->result.floor = floor_of(row->result.records, machine, options.fast);
      }
      stolen.emplace();
      TRY(result, run_op_test(*backend, test, machine, options));
    }
    const int64_t footprint = footprint_of(result, options);
    rows.push_back({std::move(result), machine.isa, threads, footprint, machine, stolen->share()});
  }
  return {};
}

Result<int> run_bench_op(const Arguments& arguments) {
  Interruptible interruptible;
  TRY(std::vector<OpTest> tests, tests_of(arguments));
  std::vector<std::string> isas = arguments.texts("isa");
  if (isas.empty()) isas = {""};
  if (isas == std::vector<std::string>{"all"}) isas.assign(cpu_isas().begin(), cpu_isas().end());
  std::vector<OpRow> rows;
  for (const std::string& isa : isas) {
    for (int threads : thread_counts(arguments)) {
      auto measured = measure(arguments, tests, isa, threads, rows);
      if (!measured.ok() && Interruptible::interrupted()) return interrupted_error();
      TRY_VOID(std::move(measured));
    }
  }
  if (arguments.text("output") == "json") {
    JsonArray all;
    for (const OpRow& row : rows) all.push_back(row_json(row));
    arguments.terminal().print("{}\n", to_pretty_text(all));
  } else {
    print_rows(arguments.terminal(), rows);
  }
  return kExitOk;
}

}  // namespace

Verb bench_op_verb() {
  Flag output = text_flag("output", "FORM", "md", "md|json", "a table or JSON");
  output.alias = "-o";
  return {
      .name = "bench op",
      .summary = "measure one operation by itself, beside what the machine allows",
      .group = "Measure and check",
      .flags = joined(
          {{by_commas(text_flag("op", "NAMES", "linear", "linear|experts|heads|attend|norm|glu", "which operations")),
            by_commas(text_flag("type", "FORMATS", "Q8_0,Q4_0,Q4_K,Q6_K,BF16,F16,F32", "", "weight formats (linear)")),
            by_commas(text_flag("size", "OxI", "2048x2048", "", "outputs and inputs")),
            by_commas(integer_flag("rows", "", "1,16,512", 1, 65536, "tokens at once")),
            text_flag("heads", "H/KVxD", "32/8x64", "",
                      "heads, heads of keys and values, width (attend); 16/1x576x512: values are a part of keys; "
                      "16/16x192+128: values have a width of their own; heads: so many products, one for each head"),
            text_flag("experts", "K/E", "8/64", "", "experts of a token, and of all (experts)"),
            text_flag("kv", "TYPE", "f16", kKvForms, "format of keys and values (attend)"),
            by_commas(integer_flag("depth", "-d", "4096", 0, 1 << 20, "tokens already in the cache (attend)")),
            by_commas(text_flag("isa", "NAMES", "", "", "instruction sets, or all; the best if not given"))},
           timing_flags(),
           {output}}),
      .examples = {{"bench op", "a square product in every common format, for 1, 16 and 512 tokens"},
                   {"bench op --op attend --heads 32/8x64 -d 1024,8192 --rows 1", "attention while generating"},
                   {"bench op --op experts,linear --experts 8/64 --size 1024x2048 --type Q4_K --rows 512",
                    "a grouped product beside a dense one"},
                   {"bench op --op heads --heads 16/1x576 --size 512x128 --type Q8_0 --rows 1,512",
                    "what goes into and out of latents, head by head"},
                   {"bench op --type Q4_K --size 8192x2048 --isa all", "every instruction set of this machine"}},
      .notes =
          "Weights and cache are copied until they exceed 256 MB and met in turn, so they come from memory as they "
          "do in a model. norm and glu move activations only, which the floor counts as free: their limit is "
          "arithmetic.",
      .run = run_bench_op};
}

}  // namespace millrace::apps
