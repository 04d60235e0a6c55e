// `eval report`: quality against bytes against speed, for a model and its variants, on one page.
#include <algorithm>
#include <cmath>

#include "apps/build_info.h"
#include "apps/cli/input.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/output.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/eval/depth.h"
#include "apps/eval/input.h"
#include "apps/plan/report.h"
#include "apps/run/flags.h"
#include "bench/step.h"
#include "eval/compare.h"
#include "report/chart.h"
#include "report/page.h"

namespace millrace::apps {
namespace {

using report::short_bytes;
using report::short_number;

struct Entry {
  std::string name;
  KvForm kv;
  int64_t weights = 0;   // bytes
  int64_t kv_token = 0;  // bytes a token
  int64_t kv_text = 0;   // bytes of the longest text at its end
  Comparison quality;
  double prefill = 0, decode = 0;  // tokens a second
  bool base = false;
};

Result<std::unique_ptr<LoadedModel>> load_file(const Arguments& arguments, const std::string& path, const KvKeep& keep,
                                               const std::string& activations) {
  LoadChoice choice = {.path = path, .device = arguments.text("device"), .context = arguments.integer("ctx")};
  choice.keep = keep;
  if (activations == "float32") choice.cpu.activations = Activations::float32;
  choice.cpu.threads = static_cast<int>(arguments.integer("threads"));
  return LoadedModel::load(choice);
}

Result<void> measure_speed(const Arguments& arguments, LoadedModel& model, const Machine& machine, Entry& entry) {
  const int32_t most = std::min(512, model.context() / 2);
  const std::vector<StepTest> tests = {{.prompt = most}, {.generated = 32, .depth = most}};
  TRY(auto executor, Executor::create(model.model(), model.backend(),
                                      options_for(tests, step_rows(arguments, "ubatch-size", 512), entry.kv)));
  for (const StepTest& test : tests) {
    TRY(const StepResult result, run_step_test(*executor, test, machine, {.repetitions = 3, .progress = [](int, int) {
                                                                            return !Interruptible::interrupted();
                                                                          }}));
    (test.prompt > 0 ? entry.prefill : entry.decode) = static_cast<double>(test.tokens()) / result.median_seconds();
  }
  return {};
}

// One file in one format of keys and values, beside the base.
Result<Entry> measure_entry(const Arguments& arguments, Executor& first, LoadedModel& variant, const KvForm& kv,
                            std::span<const ScoredText> texts, const Machine& machine, std::string name) {
  Entry entry = {.name = std::move(name), .kv = kv, .weights = variant.model().weight_bytes()};
  ExecutorOptions options = scoring_options(texts, variant.vocab());
  options.sequences = 1;
  options.kv = kv;
  TRY(auto second, Executor::create(variant.model(), variant.backend(), options));
  for (const KvShape& shape : second->planned().shapes)
    entry.kv_token += int64_t{shape.kv_heads} * (kv_bytes(kv.k, shape.k_dim) + kv_bytes(kv.v, shape.v_dim));
  uint64_t total = 0;
  int longest = 1;
  for (const ScoredText& one : texts) {
    total += one.tokens.size() - 1;
    longest = std::max(longest, static_cast<int>(one.tokens.size()));
  }
  entry.kv_text = second->layout().pages_for(longest) * second->layout().page_bytes;
  Progress progress(arguments.terminal(), entry.name, total, Progress::Unit::count);
  TRY(entry.quality, compare_models(first, *second, texts, [&](int64_t tokens) {
        progress.update(static_cast<uint64_t>(tokens));
        return !Interruptible::interrupted();
      }));
  TRY_VOID(measure_speed(arguments, variant, machine, entry));
  return entry;
}

Result<std::vector<Entry>> measure(const Arguments& arguments) {
  const std::vector<std::string> files = arguments.operands("MODELS"), how = arguments.texts("activations");
  for (const std::string& each : how)
    if (each != "fast" && each != "float32")
      return error(Code::invalid, "'{}' is no arithmetic of products; choose fast or float32", each);
  TRY(const std::string text, read_input(arguments.text("file")));
  TRY(auto base, load_file(arguments, files[0], {}, how[0]));
  TRY(const std::vector<ScoredText> texts, scored_texts(arguments, *base, text));
  TRY(const Machine machine, measure_machine({.threads = static_cast<int>(arguments.integer("threads"))}));
  std::vector<KvForm> kvs;
  for (const std::string& name : arguments.texts("kv-types")) {
    const auto type = kv_form_from_name(name);
    if (!type) return error(Code::invalid, "'{}' is no format of keys and values; choose {}", name, kKvNames);
    kvs.push_back(*type);
  }
  std::vector<KvKeep> keeps = {{}};
  for (const std::string& text_of : arguments.texts("kv-keep")) {
    auto keep = kv_keep_from(text_of);
    if (!keep.ok()) return within("--kv-keep", std::move(keep).error());
    keeps.push_back(*keep);
  }
  ExecutorOptions options = scoring_options(texts, base->vocab());
  options.sequences = 1;
  options.kv = kvs[0];
  TRY(auto first, Executor::create(base->model(), base->backend(), options));
  std::vector<Entry> entries;
  for (size_t i = 0; i < files.size() * keeps.size() * how.size(); ++i) {
    const std::string& file = files[i / how.size() / keeps.size()];
    const KvKeep& keep = keeps[i / how.size() % keeps.size()];
    const std::string& activations = how[i % how.size()];
    std::unique_ptr<LoadedModel> own;
    if (i > 0) {
      TRY(own, load_file(arguments, file, keep, activations));
    }
    LoadedModel& variant = own ? *own : *base;
    for (const KvForm& kv : kvs) {
      std::string name = std::filesystem::path(file).stem().string();
      if (kvs.size() > 1) name += fmt::format(", KV {}", kv.name());
      if (keep) name += fmt::format(", {}", keep.name());
      if (how.size() > 1) name += fmt::format(", {} activations", activations);
      TRY(Entry entry, measure_entry(arguments, *first, variant, kv, texts, machine, std::move(name)));
      entry.base = i == 0 && kv == kvs[0];
      entries.push_back(std::move(entry));
    }
  }
  return entries;
}

std::string kl_text(const Comparison& quality) {
  return fmt::format("{:.5f} ± {:.5f}", quality.kl_mean(), quality.kl_error());
}

void print_entries(const Terminal& terminal, const std::vector<Entry>& entries) {
  using Align = Table::Align;
  Table table({{"model"},
               {"weights", Align::right},
               {"KV a token", Align::right},
               {"KV of a text", Align::right},
               {"perplexity", Align::right},
               {"change", Align::right},
               {"KL", Align::right},
               {"KL p99", Align::right},
               {"flips", Align::right},
               {"prefill t/s", Align::right},
               {"decode t/s", Align::right}});
  for (const Entry& e : entries) {
    const Comparison& q = e.quality;
    table.row({printable(e.name), short_bytes(static_cast<double>(e.weights)),
               short_bytes(static_cast<double>(e.kv_token)), short_bytes(static_cast<double>(e.kv_text)),
               fmt::format("{:.4f}", q.variant_perplexity()),
               fmt::format("{:+.2f} ± {:.2f} %", 100 * q.perplexity_change(), 100 * q.perplexity_change_error()),
               kl_text(q), fmt::format("{:.5f}", q.kl_at(0.99)), fmt::format("{:.2f} %", 100 * q.flip_share()),
               short_number(e.prefill), short_number(e.decode)});
  }
  table.print(terminal);
}

JsonArray entries_json(const std::vector<Entry>& entries) {
  JsonArray rows;
  for (const Entry& e : entries) {
    const Comparison& q = e.quality;
    rows.push_back(JsonObject{{"model", valid_utf8(e.name)},
                              {"kv", e.kv.name()},
                              {"base", e.base},
                              {"weight_bytes", e.weights},
                              {"kv_bytes_per_token", e.kv_token},
                              {"kv_bytes_of_text", e.kv_text},
                              {"tokens", q.tokens},
                              {"ppl", q.variant_perplexity()},
                              {"ppl_change", q.perplexity_change()},
                              {"ppl_change_error", q.perplexity_change_error()},
                              {"kl_mean", q.kl_mean()},
                              {"kl_mean_error", q.kl_error()},
                              {"kl_p99", q.kl_at(0.99)},
                              {"kl_max", q.kl_at(1)},
                              {"flip_share", q.flip_share()},
                              {"prefill_tokens_per_second", e.prefill},
                              {"decode_tokens_per_second", e.decode}});
  }
  return rows;
}

// What an axis of a trade shows.
enum class Side : uint8_t { bytes, cache, speed, loss };

double side_of(const Entry& entry, Side side) {
  if (side == Side::bytes) return static_cast<double>(entry.weights);
  if (side == Side::cache) return static_cast<double>(entry.kv_text);
  return side == Side::speed ? entry.decode : entry.quality.kl_mean();
}

report::Axis axis_of(Side side) {
  if (side == Side::bytes) return {.title = "weights", .unit = report::Unit::bytes};
  if (side == Side::cache) return {.title = "keys and values of a text", .unit = report::Unit::bytes};
  return {.title = side == Side::speed ? "decode, tokens a second" : "mean KL from the base, nats"};
}

// Every entry a point: what it costs to the right, what it loses or gives upwards.
std::string trade_chart(const std::vector<Entry>& entries, Side x, Side y, int width = 450) {
  using namespace report;
  LineChart chart = {.x = axis_of(x), .y = axis_of(y), .series = {}, .width = width, .height = 320};
  int colour = 0;
  for (const Entry& e : entries) {
    const std::string words =
        fmt::format("{}: {}, KL {}, {} tokens a second", e.name, short_bytes(static_cast<double>(e.weights)),
                    short_number(e.quality.kl_mean()), short_number(e.decode));
    chart.series.push_back(
        {.name = "", .points = {{side_of(e, x), side_of(e, y), e.name, words}}, .colour = colour++ % 8, .line = false});
  }
  return draw(chart);
}

// The bytes that differ: of weights, of the cache, or of both.
void draw_trades(const std::vector<Entry>& entries, report::Page& page) {
  auto differ = [&](int64_t Entry::*bytes) {
    return std::any_of(entries.begin(), entries.end(),
                       [&](const Entry& e) { return e.*bytes != entries.front().*bytes; });
  };
  const bool cache = differ(&Entry::kv_text);
  if (!cache || differ(&Entry::weights))
    page.charts({{trade_chart(entries, Side::bytes, Side::loss), "Quality against bytes of weights."},
                 {trade_chart(entries, Side::bytes, Side::speed), "Speed against bytes of weights."}});
  if (cache)
    page.charts({{trade_chart(entries, Side::cache, Side::loss), "Quality against bytes of the cache."},
                 {trade_chart(entries, Side::cache, Side::speed), "Speed against bytes of the cache."}});
  page.chart(trade_chart(entries, Side::speed, Side::loss, 920),
             "Quality against speed: down and to the right is better.");
}

std::string entries_page(const std::vector<Entry>& entries, const std::string& text) {
  using namespace report;
  const Entry& base = entries.front();
  Page page(fmt::format("What formats cost: {}", base.name),
            fmt::format("Quality, bytes and speed of {} variants against {}, on {} tokens of {}. KL is of the base's "
                        "distribution from the variant's, in nats; a flip is another most likely token.",
                        entries.size() - 1, base.name, base.quality.tokens, text));
  page.section("The trade",
               "Lower is better where KL goes upwards, higher where speed does; fewer bytes are to the left.");
  draw_trades(entries, page);
  std::vector<DepthLine> lines;
  for (const Entry& e : entries) lines.push_back({e.name, &e.quality});
  page.section("By depth", "Whether what is lost grows with what was read before.");
  page.chart(depth_chart(lines), "Mean KL of the tokens at these positions.");
  BarChart bars = {.legend = {}, .bars = {}, .unit = Unit::percent};
  for (const Entry& e : entries) {
    bars.bars.push_back({.label = e.name,
                         .note = fmt::format("{:+.2f} ± {:.2f} %", 100 * e.quality.perplexity_change(),
                                             100 * e.quality.perplexity_change_error()),
                         .parts = {{std::max(0.0, e.quality.perplexity_change()), e.base ? 7 : 1}}});
  }
  page.section("Perplexity", "How much more surprised the variant is by the text, compared token by token.");
  page.chart(draw(bars), fmt::format("The base has {:.4f}.", base.quality.base_perplexity()));
  std::vector<TableRow> rows;
  for (const Entry& e : entries) {
    const Comparison& q = e.quality;
    rows.push_back(
        {.cells = {e.name, short_bytes(static_cast<double>(e.weights)), short_bytes(static_cast<double>(e.kv_token)),
                   short_bytes(static_cast<double>(e.kv_text)), fmt::format("{:.4f}", q.variant_perplexity()),
                   fmt::format("{:+.2f} ± {:.2f} %", 100 * q.perplexity_change(), 100 * q.perplexity_change_error()),
                   kl_text(q), fmt::format("{:.5f}", q.kl_at(0.99)), fmt::format("{:.2f} %", 100 * q.flip_share()),
                   short_number(e.prefill), short_number(e.decode)},
         .strong = e.base});
  }
  page.section("All figures");
  page.table({{"model", false},
              {"weights"},
              {"KV a token"},
              {"KV of a text"},
              {"perplexity"},
              {"change"},
              {"KL mean"},
              {"KL p99"},
              {"flips"},
              {"prefill t/s"},
              {"decode t/s"}},
             rows);
  return page.html(fmt::format("millrace {} eval report", kBuildInfo.version));
}

Result<int> run_eval_report(const Arguments& arguments) {
  TRY_VOID(check_outputs(arguments, {"html"}));
  Interruptible scope;
  const Terminal& terminal = arguments.terminal();
  auto entries = measure(arguments);
  if (!entries.ok() && Interruptible::interrupted()) return interrupted_error();
  if (!entries.ok()) return entries.error();
  if (arguments.given("html")) {
    const std::string name = std::filesystem::path(arguments.text("file")).filename().string();
    TRY_VOID(write_report(terminal, arguments.text("html"), entries_page(*entries, name)));
  }
  if (arguments.toggle("json")) {
    terminal.print("{}\n", to_pretty_text(entries_json(*entries)));
  } else if (!arguments.given("html")) {
    print_entries(terminal, *entries);
  }
  return kExitOk;
}

}  // namespace

Verb eval_report_verb() {
  std::vector<Flag> flags =
      joined({scoring_flags(),
              {{.name = "kv-types",
                .kind = Kind::text,
                .value = "TYPE",
                .otherwise = "f16",
                .many = Many::commas,
                .help = "formats of keys and values to try with each"},
               {.name = "kv-keep",
                .kind = Kind::text,
                .value = "WHAT",
                .many = Many::repeated,
                .help = "a cache that forgets to try with each, such as sinks:4,window:256"},
               {.name = "activations",
                .kind = Kind::text,
                .value = "HOW",
                .otherwise = "fast",
                .many = Many::commas,
                .help = "arithmetics of products to try with each: fast, float32"},
               {.name = "json", .help = "as a JSON array"},
               {.name = "html", .kind = Kind::path, .value = "FILE", .help = "write a page with charts"},
               force_flag()},
              machine_flags()});
  std::erase_if(flags, [](const Flag& flag) {
    return flag.name == "model" || flag.name == "kv-type" || flag.name.starts_with("cache-type-") ||
           (flag.name == "kv-keep" && flag.many != Many::repeated);
  });
  return {
      .name = "eval report",
      .summary = "put quality, bytes and speed of a model's variants side by side",
      .group = "Measure and check",
      .operands = {{.name = "MODELS", .many = true, .help = "the base, then its variants"}},
      .flags = std::move(flags),
      .examples = {{"eval report f16.gguf q8_0.gguf q4_k.gguf -f book.txt --html report.html",
                    "the trade to see before choosing a format"},
                   {"eval report model.gguf -f book.txt --kv-types f16,q8,fp8,q4", "formats of keys and values alone"},
                   {"eval report model.gguf -f book.txt -c 2048 --kv-keep sinks:4,window:256 --kv-keep window:1024",
                    "caches that forget"},
                   {"eval report model.gguf q4_k.gguf -f book.txt --activations float32,fast --kv-types f16,q8 --html "
                    "report.html",
                    "weights, activations and cache on one page"}},
      .run = run_eval_report};
}

}  // namespace millrace::apps
