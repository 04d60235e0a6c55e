#include <algorithm>

#include "apps/cli/flags.h"
#include "apps/cli/host.h"
#include "apps/cli/model_path.h"
#include "apps/cli/output.h"
#include "apps/cli/summary.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/plan/check.h"
#include "apps/plan/cluster.h"
#include "apps/plan/ranks.h"
#include "apps/plan/report.h"
#include "apps/run/flags.h"
#include "backend/cpu/cpu.h"
#include "base/file.h"
#include "model/architecture.h"
#include "model/convert.h"
#include "model/ffns/ffns.h"
#include "model/shapes.h"

namespace millrace::apps {
namespace {

// What is planned: a spec, and which format each of its matrices has.
struct Subject {
  std::string name, weights;
  ModelSpec spec;
  FormOf form_of;
  Checkpoint checkpoint;  // outlives what reads it
  std::optional<ModelSource> source;
};

Result<void> choose_weights(const std::string& name, Subject& subject) {
  subject.weights = name;
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower == "f8" || lower == "fp8" || lower == "f8_e4m3") {
    subject.form_of = [](const Slot& slot) { return slot.name == "token_embd" ? DType::bf16 : DType::f8_e4m3; };
    return {};
  }
  TRY(const FileType type, FileType::parse(name));
  subject.form_of = [spec = subject.spec, type](const Slot& slot) { return stored_type(spec, slot, type); };
  return {};
}

Result<ModelSpec> spec_of_config(const std::filesystem::path& path) {
  TRY(const std::string text, read_file(path, 1 << 24));
  TRY(const Json json, parse_json(text));
  TRY(Config config, Config::from_json(path.string(), json));
  return describe(config);
}

std::string main_format(const ModelSource& source) {
  std::vector<int64_t> values(kDTypes);
  for (const Slot& slot : slots(source.spec())) {
    if (slot.kind == SlotKind::matrix && slot.weight)
      values[static_cast<size_t>(source.type_of(slot))] += slot.rows * slot.cols;
  }
  const auto most = std::max_element(values.begin(), values.end()) - values.begin();
  return std::string(format(static_cast<DType>(most)).name);
}

Result<std::unique_ptr<Subject>> open_subject(const Arguments& arguments) {
  auto subject = std::make_unique<Subject>();
  const std::string weights = arguments.text("weights");
  std::filesystem::path path;
  if (auto shape = arguments.maybe_text("shape"); shape.has_value()) {
    if (arguments.given("model")) return error(Code::invalid, "give --model or --shape, not both");
    subject->name = *shape;
    TRY(subject->spec, named_shape(*shape));
  } else {
    TRY(path, model_path(arguments));
    subject->name = path.stem().string();
    if (path.extension() == ".json") {
      TRY(subject->spec, spec_of_config(path));
    } else {
      TRY(subject->checkpoint, Checkpoint::open(path));
      TRY(subject->source, ModelSource::open(subject->checkpoint, 0, Keep::small));
      subject->spec = subject->source->spec();
    }
  }
  if (arguments.given("kv-heads")) {
    TRY(subject->spec, with_kv_heads(subject->spec, static_cast<int32_t>(arguments.integer("kv-heads"))));
    subject->name += fmt::format(" with {} kv heads", arguments.integer("kv-heads"));
  }
  TRY(const KvKeep keep, kv_keep(arguments));
  TRY_VOID(forget(subject->spec, keep));
  if (weights.empty() && subject->source) {
    subject->weights = main_format(*subject->source);
    subject->form_of = [source = &*subject->source](const Slot& slot) { return source->form_of(slot); };
    return subject;
  }
  TRY_VOID(choose_weights(weights.empty() ? "BF16" : weights, *subject));
  return subject;
}

struct Target {
  Hardware hardware;
  std::unique_ptr<Backend> like;  // how this machine packs weights; null elsewhere
};

Result<Target> open_target(const Arguments& arguments) {
  Target target;
  if (arguments.text("hw") != "this") {
    TRY(target.hardware, find_hardware(arguments.text("hw")));
    return target;
  }
  const int threads = static_cast<int>(arguments.integer("threads"));
  TRY(target.like, make_cpu_backend({.threads = threads}));
  TRY(const Machine machine, measure_machine({.threads = threads}));
  const Host host = probe_host();
  target.hardware =
      hardware_of(machine, static_cast<int64_t>(std::min(host.memory, host.memory_limit.value_or(UINT64_MAX))));
  return target;
}

Result<KvForm> kv_format(const Arguments& arguments) {
  const std::string name = arguments.text("kv");
  return kv_form_from_name(name).value();
}

// Prompt, output and context from whichever of them were given.
Result<void> choose_lengths(const Arguments& arguments, const ModelSpec& spec, PlanReport& report) {
  report.batch = static_cast<int32_t>(arguments.integer("batch"));
  report.prompt = static_cast<int32_t>(arguments.integer("prompt"));
  report.output = static_cast<int32_t>(arguments.integer("output"));
  report.context = static_cast<int32_t>(arguments.integer("ctx"));
  if (report.context == 0) {
    report.context = report.prompt + report.output;
    if (!arguments.given("prompt") && !arguments.given("output") && report.context > spec.context) {
      report.context = spec.context;
      report.output = std::max(1, spec.context / 5);
      report.prompt = std::max(1, spec.context - report.output);
    }
    return {};
  }
  if (!arguments.given("output")) report.output = std::min(report.output, std::max(1, report.context / 2));
  if (!arguments.given("prompt")) report.prompt = std::max(1, report.context - report.output);
  if (report.prompt + report.output > report.context) {
    return error(Code::invalid, "a prompt of {} and an output of {} tokens do not fit a context of {}; give --ctx {}",
                 report.prompt, report.output, report.context, report.prompt + report.output);
  }
  return {};
}

Result<void> add_serving(const Arguments& arguments, PlanReport& report) {
  if (arguments.given("lengths")) {
    const std::vector<int64_t> lengths = arguments.integers("lengths");
    const int64_t longest = std::max<int64_t>(report.context, *std::max_element(lengths.begin(), lengths.end()));
    TRY(report.waste, page_waste(lengths, arguments.integer("page-tokens"), longest));
    TRY(report.use, batch_use(lengths, report.batch));
  }
  return {};
}

// What guesses would give, and the number of them that would give most: what checking them costs follows from the
// hardware's limits, for this model, batch and context.
Result<void> add_speculation(const Arguments& arguments, const Planner& planner, PlanReport& report) {
  if (!arguments.given("accept")) return {};
  const int32_t half_way = report.prompt + std::max(1, report.output / 2);
  const double plain = planner.decode(report.batch, half_way).seconds();
  auto with = [&](int32_t drafted) -> Result<PlannedDrafts> {
    if (drafted < 0 || drafted > 1024) return error(Code::invalid, "{} drafted tokens; give 0 to 1024", drafted);
    PlannedDrafts one{.drafted = drafted};
    one.check_cost = drafted == 0 ? 1 : planner.check(report.batch, drafted + 1, half_way).seconds() / plain;
    TRY(one.speculation,
        speculate(arguments.number("accept"), drafted, arguments.number("draft-cost"), report.output, one.check_cost));
    return one;
  };
  TRY(report.drafts, with(static_cast<int32_t>(arguments.integer("draft"))));
  TRY(report.best_drafts, with(0));
  for (int32_t drafted = 1; drafted <= 16; ++drafted) {
    TRY(const PlannedDrafts one, with(drafted));
    if (one.speculation.speedup > report.best_drafts->speculation.speedup) report.best_drafts = one;
  }
  return {};
}

// How many experts decode steps of some sizes read, and what that is a token.
void add_touched(const ModelSpec& spec, const Planner& planner, PlanReport& report) {
  for (const LayerSpec& layer : spec.layers) {
    const auto [experts, chosen] = experts_of(layer.ffn);
    if (experts == 0) continue;
    for (const int32_t batch : {1, 4, 16, 64}) {
      const double bytes = planner.decode(batch, report.prompt).floor.bytes / batch;
      report.touched.push_back({batch, touched_experts(experts, chosen, batch), experts, bytes});
    }
    return;
  }
}

// As ranks of this program, if anybody asked.
Result<void> add_ranks(const RanksMade& made, const Arguments& arguments, const Subject& subject, const Target& target,
                       PlanReport& report) {
  const RanksLoad load = {.kv = report.kv,
                          .threads = static_cast<int>(arguments.integer("threads")),
                          .batch = report.batch,
                          .context = report.context,
                          .prompt = report.prompt,
                          .half_way = report.prompt + std::max(1, report.output / 2),
                          .chunk = static_cast<int32_t>(arguments.integer("ubatch-size")),
                          .page_tokens = static_cast<int32_t>(arguments.integer("page-tokens"))};
  TRY(report.split, plan_ranks(made, subject.spec, subject.form_of, target.like != nullptr, target.hardware, load));
  return {};
}

Result<PlanReport> make_report(const Arguments& arguments) {
  TRY(const RanksMade made, ranks_made(arguments));
  TRY(auto subject, open_subject(arguments));
  TRY(const Target target, open_target(arguments));
  PlanReport report = {.model = subject->name,
                       .weights = subject->weights,
                       .parameters = parameters(subject->spec),
                       .active = active_parameters(subject->spec),
                       .model_context = subject->spec.context,
                       .hardware = target.hardware,
                       .ranks = static_cast<int32_t>(arguments.integer("tensor-parallel")),
                       .replicas = static_cast<int32_t>(arguments.integer("replicas")),
                       .price = arguments.number("price")};
  TRY(report.kv, kv_format(arguments));
  TRY_VOID(choose_lengths(arguments, subject->spec, report));
  TRY_VOID(add_serving(arguments, report));
  TRY(const ModelSpec part, shard_spec(subject->spec, report.ranks));
  auto backend = make_trace_backend(target.like.get());
  TRY(auto model, Model::outline(part, subject->form_of, *backend));
  TRY(Planner planner, Planner::create(*model, *backend, target.hardware,
                                       {.kv = report.kv,
                                        .chunk = static_cast<int32_t>(arguments.integer("ubatch-size")),
                                        .page_tokens = static_cast<int32_t>(arguments.integer("page-tokens")),
                                        .ranks = report.ranks}));
  TRY(report.memory, planner.memory(report.batch, report.context));
  if (subject->source && target.like && !arguments.given("weights") && report.ranks == 1) {
    if (auto note = packed_note(subject->source->checkpoint(), report.memory.weights))
      arguments.terminal().note("{}", *note);
  }
  TRY(report.fitting_sequences, planner.sequences_that_fit(report.context));
  TRY(report.fitting_context, planner.context_that_fits(report.batch));
  for (int32_t length = 1024; length <= report.model_context && length <= (1 << 20); length *= 4) {
    TRY(const int32_t sequences, planner.sequences_that_fit(length));
    report.fitting.emplace_back(length, sequences);
  }
  report.prefill = planner.prefill(report.prompt);
  report.prefill_ops = planner.prefill_ops(report.prompt);
  TRY(report.load, planner.load(report.batch, report.prompt, report.output));
  const int32_t half_way = report.prompt + std::max(1, report.output / 2);
  report.decode = planner.decode(report.batch, half_way);
  report.decode_ops = planner.decode_ops(report.batch, half_way);
  report.compute_bound_batch = planner.compute_bound_batch();
  report.product_rate = planner.product_rate();
  TRY(report.frontier, planner.frontier(report.prompt, report.output));
  TRY_VOID(add_speculation(arguments, planner, report));
  add_touched(subject->spec, planner, report);
  TRY_VOID(add_ranks(made, arguments, *subject, target, report));
  report.scores = score_memory(subject->spec, report.batch, report.context);
  for (const AttentionVariant& variant : attention_variants(subject->spec)) {
    auto bytes = kv_bytes(variant.spec, report.kv, report.batch, report.context,
                          static_cast<int32_t>(arguments.integer("page-tokens")));
    if (bytes.ok()) report.attention.push_back({variant.name, *bytes, variant.own});
  }
  return report;
}

Result<int> plan_cluster(const Arguments& arguments) {
  TRY(auto subject, open_subject(arguments));
  TRY(const Target target, open_target(arguments));
  const auto ranks = static_cast<int32_t>(arguments.integer("tensor-parallel"));
  TRY(const KvForm kv, kv_format(arguments));
  TRY(const ModelSpec part, shard_spec(subject->spec, ranks));
  auto backend = make_trace_backend(target.like.get());
  TRY(auto model, Model::outline(part, subject->form_of, *backend));
  TRY(Planner planner, Planner::create(*model, *backend, target.hardware,
                                       {.kv = kv,
                                        .chunk = static_cast<int32_t>(arguments.integer("ubatch-size")),
                                        .page_tokens = static_cast<int32_t>(arguments.integer("page-tokens")),
                                        .ranks = ranks}));
  return run_cluster_plan(arguments, planner, subject->name, ranks);
}

Result<int> run_plan(const Arguments& arguments) {
  if (arguments.toggle("check")) return run_plan_check(arguments);
  if (arguments.toggle("cluster")) {
    if (arguments.given("ranks"))
      return error(Code::invalid, "--cluster plans with devices (--tp), not with --ranks; give one of them");
    return plan_cluster(arguments);
  }
  const Terminal& terminal = arguments.terminal();
  TRY_VOID(check_outputs(arguments, {"html"}));
  TRY(const PlanReport report, make_report(arguments));
  if (report.context > report.model_context) {
    terminal.warn("a context of {} tokens, but the model was made for {}", report.context, report.model_context);
  }
  if (arguments.given("html")) TRY_VOID(write_report(terminal, arguments.text("html"), plan_page(report)));
  if (arguments.toggle("json")) {
    terminal.print("{}\n", to_pretty_text(plan_json(report)));
  } else if (!arguments.given("html")) {
    print_plan(terminal, report);
  }
  return kExitOk;
}

constexpr double kMany = 1 << 24;

std::vector<Flag> subject_flags() {
  return {
      model_flag(),
      text_flag("shape", "NAME", "", "", "a well-known model by name, no file needed"),
      text_flag("hw", "NAME", "this", "",
                "this (measured), h100, h200, a100, l40s, rtx4090, graviton3, graviton4, spr, epyc, or a .json file"),
      text_flag("weights", "FORMAT", "", "",
                "F16, BF16, F8, Q8_0, Q4_K_M ...; else as the file has them, BF16 for a shape"),
      {.name = "kv",
       .alias = "--kv-type",
       .kind = Kind::text,
       .value = "TYPE",
       .otherwise = "f16",
       .choices = kKvForms,
       .help = "format of keys and values"},
      kv_keep_flag(),
      integer_flag("kv-heads", "", "", -kMany, kMany, "as if the model had so many key/value heads")};
}

std::vector<Flag> load_flags() {
  return {integer_flag("batch", "-b", "1", 1, 65536, "sequences at once"),
          integer_flag("ctx", "-c --ctx-size", "0", 0, kMany, "tokens each may grow to; 0: prompt and answer"),
          integer_flag("prompt", "-p", "1024", 1, kMany, "tokens of a prompt"),
          integer_flag("output", "-n", "256", 1, kMany, "tokens of an answer"),
          integer_flag("tensor-parallel", "--tp", "1", 1, 1024, "devices each copy of the model is cut over"),
          integer_flag("replicas", "", "1", 1, 1 << 20, "copies of the model, each on devices of its own"),
          number_flag("price", "", "", 0, 1e9, "of one device and hour"),
          integer_flag("ubatch-size", "-ub", "512", 1, 1 << 20, "prompt tokens of one pass"),
          integer_flag("page-tokens", "", "16", 1, 4096, "tokens of a page of the cache"),
          by_commas(integer_flag("lengths", "", "", 1, kMany,
                                 "answers of these lengths: what pages waste and what batches leave idle")),
          number_flag("accept", "", "", 0, 1, "drafted tokens: the probability that one is accepted"),
          integer_flag("draft", "", "4", 0, 1024, "drafted tokens a pass"),
          number_flag("draft-cost", "", "0.1", 0, 1e6, "of a drafted token, in passes of the model"),
          integer_flag("threads", "-t", "0", 0, 1024, "for --hw this and --check; 0: one for every processor"),
          {.name = "check",
           .help = "run the model here and print what was predicted beside what was measured; with --accept, time "
                   "passes that check guesses and predict from them"},
          {.name = "json", .help = "as one JSON object"},
          path_flag("html", "FILE", "write a page with charts"),
          force_flag()};
}

}  // namespace

Verb plan_verb() {
  return {
      .name = "plan",
      .summary = "say before running it what a model needs and how fast it could be",
      .group = "Measure and check",
      .flags = joined({subject_flags(), load_flags(), ranks_plan_flags(), cluster_flags()}),
      .examples = {{"plan --shape llama-2-13b --hw h100 --batch 16", "memory, time and what fits"},
                   {"plan --shape llama-3.1-70b --hw h100 --tp 8 --weights F8 --price 2.5 --html plan.html",
                    "cut over eight devices, with cost, as a page"},
                   {"plan -m model.gguf", "a file on this machine"},
                   {"plan --cluster --shape llama-3.1-8b --hw h100 --trace azure.csv --speed 1,10 --price 2.5",
                    "how many machines that traffic needs"},
                   {"plan -m model.gguf --ranks 2,4", "what ranks would hold, send and take"},
                   {"plan --check", "predicted against measured, here"}},
      .notes =
          "Work comes from running the network under an interpreter that only counts; times are the least the "
          "hardware could take: each operation the longer of reading its weights and cache and computing, one after "
          "another. Real engines come near it, none passes it. Latent attention is counted in its absorbed form, and "
          "experts as many as a batch would touch if tokens chose evenly.",
      .run = run_plan};
}

}  // namespace millrace::apps
