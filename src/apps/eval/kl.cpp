#include <algorithm>

#include "apps/build_info.h"
#include "apps/cli/host.h"
#include "apps/cli/input.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/output.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/eval/depth.h"
#include "apps/eval/input.h"
#include "apps/plan/report.h"
#include "apps/run/adapters.h"
#include "apps/run/flags.h"
#include "base/human.h"
#include "base/json.h"
#include "eval/compare.h"
#include "report/page.h"

namespace millrace::apps {
namespace {

// The variant: another file, or the same in another way.
Result<std::unique_ptr<LoadedModel>> load_variant(const Arguments& arguments, const LoadedModel& base) {
  LoadChoice choice = {.path = base.checkpoint().path(), .context = arguments.integer("ctx")};
  if (arguments.given("variant")) choice.path = arguments.text("variant");
  choice.device = arguments.given("variant-backend") ? arguments.text("variant-backend") : arguments.text("device");
  choice.cpu.threads = static_cast<int>(arguments.integer("threads"));
  choice.keep = base.model().spec().keep;
  if (arguments.given("variant-kv-keep")) {
    TRY(choice.keep, kv_keep(arguments, "variant-kv-keep"));
  }
  if (arguments.given("variant-activations") && arguments.text("variant-activations") == "float32")
    choice.cpu.activations = Activations::float32;
  return LoadedModel::load(choice);
}

// What a sequence of the longest text holds of the cache at its end.
struct Held {
  int32_t tokens = 0;
  int64_t base = 0, variant = 0;  // bytes
};

int64_t held_bytes(const Executor& executor, int32_t tokens) {
  return executor.layout().pages_for(tokens) * executor.layout().page_bytes;
}

void print_held(const Terminal& terminal, const Held& held) {
  if (held.base == held.variant) return;
  terminal.print("KV          {} -> {} ({:+.1f} %) of {} tokens\n", human_bytes(static_cast<uint64_t>(held.base)),
                 human_bytes(static_cast<uint64_t>(held.variant)),
                 100 * (static_cast<double>(held.variant) / static_cast<double>(held.base) - 1), held.tokens);
}

void print_comparison(const Terminal& terminal, const Comparison& c, const Held& held) {
  print_held(terminal, held);
  terminal.print("KL          mean {:.6f} +- {:.6f}, median {:.6f}, p99 {:.6f}, max {:.6f}\n", c.kl_mean(),
                 c.kl_error(), c.kl_at(0.5), c.kl_at(0.99), c.kl_at(1));
  terminal.print("top-1 flips {} of {} ({:.2f} %)\n", c.flips, c.tokens, 100 * c.flip_share());
  terminal.print("perplexity  {:.4f} -> {:.4f} ({:+.3f} % +- {:.3f})\n\n", c.base_perplexity(), c.variant_perplexity(),
                 100 * c.perplexity_change(), 100 * c.perplexity_change_error());
  using Align = Table::Align;
  Table table({{"positions"}, {"tokens", Align::right}, {"mean KL", Align::right}, {"flips", Align::right}});
  for (const DepthShare& depth : c.depths) {
    if (depth.tokens == 0) continue;
    const double tokens = static_cast<double>(depth.tokens);
    table.row({fmt::format("{} to {}", depth.from, depth.to - 1), fmt::format("{}", depth.tokens),
               fmt::format("{:.6f}", depth.kl_sum / tokens),
               fmt::format("{:.2f} %", 100 * static_cast<double>(depth.flips) / tokens)});
  }
  table.print(terminal);
}

Json comparison_json(const Comparison& c, const Held& held) {
  JsonArray depths;
  for (const DepthShare& depth : c.depths) {
    if (depth.tokens == 0) continue;
    depths.push_back(JsonObject{{"from", depth.from},
                                {"to", depth.to},
                                {"tokens", depth.tokens},
                                {"kl_mean", depth.kl_sum / static_cast<double>(depth.tokens)},
                                {"flips", depth.flips}});
  }
  return JsonObject{{"tokens", c.tokens},
                    {"kl_mean", c.kl_mean()},
                    {"kl_mean_error", c.kl_error()},
                    {"kl_median", c.kl_at(0.5)},
                    {"kl_p99", c.kl_at(0.99)},
                    {"kl_max", c.kl_at(1)},
                    {"flips", c.flips},
                    {"flip_share", c.flip_share()},
                    {"ppl_base", c.base_perplexity()},
                    {"ppl_variant", c.variant_perplexity()},
                    {"ppl_change", c.perplexity_change()},
                    {"ppl_change_error", c.perplexity_change_error()},
                    {"kv_tokens", held.tokens},
                    {"kv_bytes_base", held.base},
                    {"kv_bytes_variant", held.variant},
                    {"depths", std::move(depths)}};
}

std::string comparison_page(const std::string& name, const Comparison& c, const Held& held) {
  report::Page page(fmt::format("What is lost: {}", name),
                    fmt::format("KL is of the base's distribution from the variant's, in nats, at {} tokens; a flip is "
                                "another most likely token.",
                                c.tokens));
  page.figures(
      {{fmt::format("{:.6f}", c.kl_mean()), "mean KL", fmt::format("± {:.6f}", c.kl_error())},
       {fmt::format("{:.2f} %", 100 * c.flip_share()), "flips", fmt::format("{} of {}", c.flips, c.tokens)},
       {fmt::format("{:+.3f} %", 100 * c.perplexity_change()), "perplexity",
        fmt::format("± {:.3f}", 100 * c.perplexity_change_error())},
       {report::short_bytes(static_cast<double>(held.variant)), "keys and values",
        fmt::format("of {} tokens; the base {}", held.tokens, report::short_bytes(static_cast<double>(held.base)))}});
  page.section("By depth", "Whether what is lost grows with what was read before.");
  page.chart(depth_chart({{{name, &c}}}), "Mean KL of the tokens at these positions.");
  return page.html(fmt::format("millrace {} eval kl", kBuildInfo.version));
}

// What the variant is, in the words it was asked for by.
std::string variant_name(const Arguments& arguments) {
  std::string name;
  for (const char* flag :
       {"variant", "variant-lora", "variant-kv", "variant-kv-keep", "variant-backend", "variant-activations"}) {
    if (!arguments.given(flag)) continue;
    name += fmt::format("{}{}", name.empty() ? "" : ", ", arguments.text(flag));
  }
  return name;
}

Result<int> run_eval_kl(const Arguments& arguments) {
  TRY_VOID(check_outputs(arguments, {"html"}));
  const Terminal& terminal = arguments.terminal();
  const bool differs = arguments.given("variant") || arguments.given("variant-backend") ||
                       arguments.given("variant-kv") || arguments.given("variant-activations") ||
                       arguments.given("variant-lora") || arguments.given("variant-kv-keep");
  if (!differs) {
    return wrong_use(arguments,
                     "nothing to compare with: give --variant FILE, --variant-lora, --variant-kv, --variant-kv-keep, "
                     "--variant-backend or --variant-activations");
  }
  TRY(const std::string text, read_input(arguments.text("file")));
  TRY(auto base, load_model(arguments, arguments.integer("ctx")));
  TRY(auto variant, load_variant(arguments, *base));
  TRY(const std::vector<ScoredText> texts, scored_texts(arguments, *base, text));
  ExecutorOptions options = scoring_options(texts, base->vocab());
  options.sequences = 1;
  options.kv = kv_type(arguments, *base);
  TRY(auto first, Executor::create(base->model(), base->backend(), options));
  if (arguments.given("variant-kv")) options.kv = kv_form_from_name(arguments.text("variant-kv")).value();
  TRY(auto second, Executor::create(variant->model(), variant->backend(), options));
  if (arguments.given("variant-lora")) {
    TRY(const AdapterAsk ask, adapter_ask(arguments.text("variant-lora"), false));
    TRY_VOID(use_adapters({ask}, terminal, *second));
  }
  uint64_t total = 0;
  Held held;
  for (const ScoredText& one : texts) {
    total += one.tokens.size() - 1;
    held.tokens = std::max(held.tokens, static_cast<int32_t>(one.tokens.size()));
  }
  held.base = held_bytes(*first, held.tokens);
  held.variant = held_bytes(*second, held.tokens);
  Interruptible scope;
  std::optional<Progress> progress(std::in_place, terminal, "comparing", total, Progress::Unit::count);
  auto compared = compare_models(*first, *second, texts, [&](int64_t tokens) {
    progress->update(static_cast<uint64_t>(tokens));
    return !Interruptible::interrupted();
  });
  progress.reset();
  if (!compared.ok() && Interruptible::interrupted()) return interrupted_error();
  if (!compared.ok()) return compared.error();
  if (arguments.given("html"))
    TRY_VOID(write_report(terminal, arguments.text("html"), comparison_page(variant_name(arguments), *compared, held)));
  if (arguments.toggle("json")) {
    terminal.print("{}\n", to_text(comparison_json(*compared, held)));
  } else {
    print_comparison(terminal, *compared, held);
  }
  return kExitOk;
}

}  // namespace

Verb eval_kl_verb() {
  return {
      .name = "eval kl",
      .summary = "measure how far a variant's distributions are from a base's, on a text",
      .group = "Measure and check",
      .flags = joined(
          {scoring_flags(),
           {{.name = "variant", .kind = Kind::path, .value = "FILE", .help = "another model file; else the same"},
            path_flag("variant-lora", "PATH", "a LoRA adapter that only the other model has"),
            {.name = "variant-kv",
             .kind = Kind::text,
             .value = "TYPE",
             .choices = kKvForms,
             .help = "its format of keys and values"},
            kv_keep_flag("variant-kv-keep"),
            {.name = "variant-backend",
             .kind = Kind::text,
             .value = "NAME",
             .choices = "cpu|reference",
             .help = "what computes it"},
            {.name = "variant-activations",
             .kind = Kind::text,
             .value = "HOW",
             .choices = "fast|float32",
             .help = "its arithmetic of products"},
            {.name = "json", .help = "as a JSON object"},
            {.name = "html", .kind = Kind::path, .value = "FILE", .help = "write a page that draws KL by depth"},
            force_flag()},
           machine_flags()}),
      .examples = {{"eval kl -m model-f16.gguf --variant model-q4_k.gguf -f book.txt", "what quantising costs"},
                   {"eval kl -f book.txt --variant-kv bf16", "another format of keys and values, the shipped model"},
                   {"eval kl -f book.txt --ctx 2048 --variant-kv-keep sinks:4,window:256", "a cache that forgets"}},
      .notes =
          "KL is of the base's distribution from the variant's, in nats, at every scored token; a flip is another "
          "most likely token. The change of perplexity compares token by token, so its error is much smaller than "
          "that of either perplexity.",
      .run = run_eval_kl};
}

}  // namespace millrace::apps
