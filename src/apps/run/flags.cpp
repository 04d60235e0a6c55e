#include "apps/run/flags.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <random>

#include "apps/cli/interrupt.h"
#include "apps/cli/model_path.h"
#include "apps/cli/summary.h"
#include "apps/cli/terminal.h"
#include "apps/run/transport.h"
#include "backend/cpu/cpu.h"
#include "base/file.h"
#include "session/added_sampling.h"
#include "session/device.h"

namespace millrace::apps {
namespace {

constexpr double kMany = 1 << 30;

// Which flag sets which value, where the names differ in more than dashes.
struct DefaultFlag {
  std::string_view flag, value;
};
constexpr DefaultFlag kDefaultFlags[] = {
    {"temp", "temperature"},
    {"top-k", "top_k"},
    {"top-p", "top_p"},
    {"min-p", "min_p"},
    {"typical", "typical_p"},
    {"top-nsigma", "top_n_sigma"},
    {"xtc-probability", "xtc_probability"},
    {"xtc-threshold", "xtc_threshold"},
    {"repeat-penalty", "repetition_penalty"},
    {"repeat-last-n", "repeat_last_n"},
    {"presence-penalty", "presence_penalty"},
    {"frequency-penalty", "frequency_penalty"},
    {"dry-multiplier", "dry_multiplier"},
    {"dry-base", "dry_base"},
    {"dry-allowed-length", "dry_allowed_length"},
    {"dry-penalty-last-n", "dry_penalty_last_n"},
    {"mirostat", "mirostat"},
    {"mirostat-ent", "mirostat_tau"},
    {"mirostat-lr", "mirostat_eta"},
};

uint64_t random_seed() {
  std::random_device device;
  return uint64_t{device()} & 0x7FFFFFFF;  // short enough to be typed again
}

// Weights as precise as a float16 cache, or more: a bfloat16 one would lose more than they did.
bool exact_weights(const Model& model) {
  if (model.weights().layers.empty()) return true;
  const auto* mixer = std::get_if<GqaWeights>(&model.weights().layers.front().mixer);
  return mixer == nullptr || mixer->q.type == DType::f16 || mixer->q.type == DType::f32;
}

}  // namespace

Flag device_flag() {
  return {.name = "device",
          .alias = "--backend",
          .kind = Kind::text,
          .value = "NAME",
          .otherwise = "cpu",
          .help = "what computes: cpu, cuda, cuda:NUMBER, auto (a GPU if there is one) or reference"};
}

Flag ranks_flag() {
  return integer_flag("ranks", "-tp --tensor-parallel-size", "1", 1, kMostRanks,
                      "parts the model is cut into, each with its share of weights, cache and threads; answers are the "
                      "same");
}

Flag transport_flag() {
  return text_flag("transport", "HOW", "threads", "threads|mpi|nccl",
                   "ranks are threads of this process, the processes that mpirun started, or threads with a GPU each "
                   "between which NCCL moves rows");
}

Flag pipeline_flag() {
  return {.name = "pipeline",
          .help = "ranks have whole layers instead of parts of all: less is sent, and they work one after the other"};
}

Flag whole_experts_flag() {
  return {.name = "whole-experts",
          .help =
              "of a mixture of experts, ranks have whole ones instead of some outputs of each: less is sent, and they "
              "are busy unevenly"};
}

Result<RankCut> rank_cut(const Arguments& arguments) {
  auto asked = [&](std::string_view flag) { return arguments.knows(flag) && arguments.toggle(flag); };
  const bool layers = asked("pipeline"), experts = asked("whole-experts");
  if (layers && experts)
    return error(Code::invalid,
                 "--pipeline gives ranks whole layers, with all of their experts, and --whole-experts parts of every "
                 "layer: give one of them");
  return layers ? RankCut::layers : (experts ? RankCut::experts : RankCut::outputs);
}

int ranks_of(const Arguments& arguments) {
  return arguments.knows("ranks") ? static_cast<int>(arguments.integer("ranks")) : 1;
}

bool over_mpi(const Arguments& arguments) {
  return arguments.knows("transport") && arguments.text("transport") == "mpi";
}

int32_t step_rows(const Arguments& arguments, std::string_view flag, int32_t on_cpu) {
  const auto asked = static_cast<int32_t>(arguments.integer(flag));
  if (asked > 0) return asked;
  return gpu_memory(arguments.text("device")) > 0 ? 2048 : on_cpu;
}

std::vector<Flag> kv_apart_flags() {
  Flag keys = text_flag("cache-type-k", "TYPE", "", kKvForms, "numbers that keys alone are kept in");
  Flag values = text_flag("cache-type-v", "TYPE", "", kKvForms, "numbers that values alone are kept in");
  keys.alias = "-ctk", values.alias = "-ctv";
  return {keys, values};
}

std::vector<Flag> kv_flags() {
  std::vector<Flag> flags = {
      {.name = "kv-type",
       .alias = "--kv --kv-cache-dtype",
       .kind = Kind::text,
       .value = "TYPE",
       .otherwise = "auto",
       .choices = kKvTypes,
       .help = "numbers that keys and values are kept in: 16 bits, 8 (q8, fp8) or 4 (q4); auto: bf16 where that is "
               "faster and the weights are not F16 or F32, else f16"}};
  for (Flag& flag : kv_apart_flags()) flags.push_back(std::move(flag));
  flags.push_back(kv_keep_flag());
  return flags;
}

Flag kv_keep_flag(std::string_view name) {
  return {.name = name,
          .kind = Kind::text,
          .value = "WHAT",
          .help =
              "forget: keep the first and the last tokens only, such as sinks:4,window:4096, in fixed memory "
              "whatever the length"};
}

Result<KvKeep> kv_keep(const Arguments& arguments, std::string_view name) {
  if (!arguments.knows(name) || !arguments.given(name)) return KvKeep{};
  auto keep = kv_keep_from(arguments.text(name));
  if (!keep.ok()) return within(fmt::format("--{}", name), std::move(keep).error());
  return keep;
}

std::vector<Flag> machine_flags() {
  return joined(
      {{device_flag(), integer_flag("threads", "-t", "0", 0, 1024, "worker threads; 0: one for every processor")},
       kv_flags(),
       {integer_flag("ubatch-size", "-ub --chunk", "0", 0, 1 << 20,
                     "tokens computed in one step; 0: 512, on a GPU 2048"),
        {.name = "memory-limit",
         .kind = Kind::bytes,
         .value = "BYTES",
         .otherwise = "0",
         .help = "most memory to take; 0: what the machine has free"}}});
}

// Without a value of their own: the model's files may have one, and ours is in session/sampling_defaults.cpp.
std::vector<Flag> default_flags() {
  return {
      number_flag("temp", "--temperature", "", 0, 100,
                  "temperature; 0 always takes the likeliest token; without it and the like, what the model's makers "
                  "say, or else 0.8"),
      integer_flag("top-k", "", "", 0, kMany, "keep the N likeliest tokens; 0: all; else 40"),
      number_flag("top-p", "", "", 0, 1, "keep the likeliest tokens up to this probability; 1: all; else 0.95"),
      number_flag("min-p", "", "", 0, 1,
                  "keep tokens at least this likely compared with the likeliest; 0: all; else 0.05"),
      number_flag("typical", "--typical-p", "", 0, 1, "keep the most typical tokens up to this probability; 1: all"),
      number_flag("top-nsigma", "--top-n-sigma", "", -1, 100,
                  "keep logits within this many standard deviations of the largest; 0: all"),
      number_flag("xtc-probability", "", "", 0, 1, "how often XTC removes the likeliest tokens; 0: never"),
      number_flag("xtc-threshold", "", "", 0, 1,
                  "XTC: of the tokens at least this likely only the least likely stays; else 0.1"),
      number_flag("repeat-penalty", "--repetition-penalty", "", 0, 100, "divides the logits of tokens seen; 1: off"),
      integer_flag("repeat-last-n", "", "", -1, kMany, "tokens the penalties look back over; 0: none, -1: all"),
      number_flag("presence-penalty", "", "", -100, 100, "taken from the logit of a token seen"),
      number_flag("frequency-penalty", "", "", -100, 100, "taken from the logit each time a token was seen"),
      number_flag("dry-multiplier", "", "", 0, 100, "strength of the penalty on continued repetitions (DRY); 0: off"),
      number_flag("dry-base", "", "", 1, 100,
                  "DRY: growth of the penalty with the length of the repetition; else 1.75"),
      integer_flag("dry-allowed-length", "", "", 1, kMany, "DRY: repetitions shorter than this are free; else 2"),
      integer_flag("dry-penalty-last-n", "", "", -1, kMany, "DRY: tokens looked back over; -1: all"),
      {.name = "dry-sequence-breaker",
       .kind = Kind::text,
       .value = "TEXT",
       .many = Many::repeated,
       .help =
           "DRY: no repetition reaches across this text; replaces the usual newline : \" *, and 'none' leaves none"},
      integer_flag("mirostat", "", "", 0, 2, "2: keep the surprise of the text steady (version 2); 0: off"),
      number_flag("mirostat-ent", "", "", 0, 100, "mirostat: the surprise aimed at, in bits; else 5"),
      number_flag("mirostat-lr", "", "", 0, 1, "mirostat: how fast it is steered there; else 0.1"),
  };
}

std::vector<Flag> sampling_flags() {
  return joined(
      {default_flags(),
       {{.name = "logit-bias",
         .alias = "-l",
         .kind = Kind::text,
         .value = "ID+X",
         .many = Many::repeated,
         .help = "add to the logit of a token: 15043+1, 15043-2.5, 15043=-inf"},
        {.name = "ban-token-ids",
         .kind = Kind::integer,
         .value = "ID",
         .many = Many::commas,
         .least = 0,
         .most = kMany,
         .help = "tokens never to choose"},
        integer_flag("seed", "-s", "-1", -1, 9e18, "the same seed gives the same text; -1: a new one each time")}});
}

std::vector<Flag> stopping_flags() {
  return {
      integer_flag("predict", "-n --n-predict --max-tokens", "-1", -1, kMany,
                   "most tokens of an answer; -1: until the context is full"),
      integer_flag("min-tokens", "", "0", 0, kMany, "no end before so many tokens"),
      {.name = "ignore-eos", .help = "never choose an end token"},
      {.name = "stop",
       .alias = "-r --reverse-prompt",
       .kind = Kind::text,
       .value = "TEXT",
       .many = Many::repeated,
       .help = "end the answer where this text comes up"},
      {.name = "stop-token-ids",
       .kind = Kind::integer,
       .value = "ID",
       .many = Many::commas,
       .least = 0,
       .most = kMany,
       .help = "end the answer at these tokens"},
  };
}

namespace {

// What is said of keys and of values alone.
KvForm with_parts(const Arguments& arguments, KvForm form) {
  if (const auto keys = arguments.maybe_text("cache-type-k")) {
    const KvForm asked = kv_form_from_name(*keys).value();
    form.k = asked.k, form.turned = asked.turned;
  }
  if (const auto values = arguments.maybe_text("cache-type-v")) form.v = kv_form_from_name(*values).value().v;
  return form;
}

}  // namespace

KvForm kv_type(const std::string& name, const Model& model, const Backend& backend) {
  if (name == "auto") return exact_weights(model) ? DType::f16 : fastest_kv(backend);
  return kv_form_from_name(name).value();
}

KvForm kv_type(const Arguments& arguments, const LoadedModel& loaded) {
  return with_parts(arguments, kv_type(arguments.text("kv-type"), loaded.model(), loaded.backend()));
}

KvForm kv_form(const Arguments& arguments, std::string_view both) {
  return with_parts(arguments, kv_form_from_name(arguments.text(both)).value());
}

int32_t usual_context(const LoadedModel& model, int32_t usual) {
  constexpr int32_t kForgetful = 1 << 20;
  return model.model().spec().keep.bounded() ? kForgetful : std::min(model.context(), usual);
}

void warn_of_length(const Terminal& terminal, const LoadedModel& model, int32_t context) {
  const KvKeep& keep = model.model().spec().keep;
  if (keep.bounded() && reach_of(keep, context) > model.context()) {
    terminal.warn("{} reaches back {} tokens, but the model was made for {}: text beyond that may be poor", keep.name(),
                  keep.sinks + keep.window, model.context());
  } else if (!keep.bounded() && context > model.context()) {
    terminal.warn(
        "a context of {} tokens, but the model was made for {}: text beyond that may be poor (--kv-keep goes "
        "on with what lies within)",
        context, model.context());
  }
}

Result<void> add_bias(std::string_view text, Sampling& sampling) {
  auto malformed = [&] {
    return error(Code::invalid, "--logit-bias needs a token id and a bias, such as 15043+1 or 15043=-inf, not '{}'",
                 text);
  };
  Token token = 0;
  auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), token);
  std::string_view bias = text.substr(static_cast<size_t>(rest - text.data()));
  if (failure != std::errc() || bias.size() < 2) return malformed();
  const bool assigned = bias[0] == '=' || bias[0] == ':';
  if (assigned || bias[0] == '+') bias.remove_prefix(1);
  if (bias == "-inf" || bias == "false") {
    sampling.banned.push_back(token);
    return {};
  }
  float value = 0;
  auto [end, broken] = std::from_chars(bias.data(), bias.data() + bias.size(), value);
  if (broken != std::errc() || end != bias.data() + bias.size()) return malformed();
  sampling.bias.push_back({token, value});
  return {};
}

SamplingDefaults model_defaults(const Checkpoint& checkpoint) {
  SamplingDefaults defaults = sampling_defaults(checkpoint);
  add_sampling(defaults, registry_values(checkpoint.path()));
  return defaults;
}

SamplingDefaults defaults_of(const Arguments& arguments, const LoadedModel& model) {
  SamplingDefaults defaults = model_defaults(model.checkpoint());
  if (fills_masks(model.model().spec())) suit_filling(defaults);
  for (const std::string& sentence : defaults.ignored) arguments.terminal().warn("{}", printable(sentence));
  for (const DefaultFlag& row : kDefaultFlags) {
    if (!arguments.given(row.flag)) continue;
    const auto values = sampling_values();
    const auto value = std::find_if(values.begin(), values.end(), [&](const auto& v) { return v.name == row.value; });
    CHECK(value != values.end(), "no value {}", row.value);
    if (value->number != nullptr) {
      defaults.sampling.*value->number = arguments.number(row.flag);
    } else {
      defaults.sampling.*value->integer = static_cast<int32_t>(arguments.integer(row.flag));
    }
    std::erase(defaults.of_model, row.value);
  }
  defaults.sampling.top_n_sigma = std::max(0.0, defaults.sampling.top_n_sigma);
  if (std::vector<std::string> breakers = arguments.texts("dry-sequence-breaker"); !breakers.empty())
    defaults.dry_breakers = breakers == std::vector<std::string>{"none"} ? std::vector<std::string>() : breakers;
  return defaults;
}

Result<Sampling> sampling_of(const Arguments& arguments, const LoadedModel& model) {
  const SamplingDefaults defaults = defaults_of(arguments, model);
  Sampling s = defaults.sampling;
  for (const std::string& text : arguments.texts("logit-bias")) TRY_VOID(add_bias(text, s));
  for (int64_t id : arguments.integers("ban-token-ids")) s.banned.push_back(static_cast<Token>(id));
  const int64_t seed = arguments.integer("seed");
  s.seed = seed < 0 ? random_seed() : static_cast<uint64_t>(seed);
  if (s.dry_multiplier > 0) s.dry_breakers = model.tokens_containing(defaults.dry_breakers);
  TRY_VOID(check_sampling(s, model.vocab()));
  return s;
}

namespace {

// Whether a file has layers that predict further tokens, which nothing runs: they join an embedding to what came
// before.
bool predicts_ahead(const Checkpoint& checkpoint) {
  return std::ranges::any_of(checkpoint.tensors(), [](const StoredTensor& tensor) {
    return tensor.name.find(".eh_proj.") != std::string::npos || tensor.name.find(".nextn.") != std::string::npos ||
           tensor.name.starts_with("mtp.");
  });
}

}  // namespace

Result<std::unique_ptr<LoadedModel>> load_model(const Arguments& arguments, int64_t context) {
  const Terminal& terminal = arguments.terminal();
  TRY(auto path, model_path(arguments));
  if (!names_model(arguments))
    terminal.note("using the shipped model {} (choose another with -m)", path.filename().string());
  TRY(const std::string device, rank_device(arguments));
  LoadChoice choice{.path = path, .device = device, .context = context};
  choice.cpu.threads = static_cast<int>(arguments.integer("threads"));
  choice.ranks = ranks_of(arguments);
  TRY(choice.cut, rank_cut(arguments));
  choice.mpi = over_mpi(arguments);
  choice.memory_limit = memory_limit(arguments);
  TRY(choice.keep, kv_keep(arguments));
  if (arguments.knows("chat-template") && arguments.given("chat-template")) {
    TRY(choice.chat_template, read_file(arguments.text("chat-template"), size_t{16} << 20));
  }
  std::optional<Progress> progress;
  Interruptible scope;
  choice.progress = [&](int64_t done, int64_t total) {
    if (!progress) progress.emplace(terminal, "loading", static_cast<uint64_t>(total), Progress::Unit::bytes);
    progress->update(static_cast<uint64_t>(done));
    return !Interruptible::interrupted();
  };
  auto loaded = LoadedModel::load(choice);
  progress.reset();
  if (!loaded.ok() && Interruptible::interrupted()) return interrupted_error();
  if (!loaded.ok()) return loaded;
  if (predicts_ahead((*loaded)->checkpoint())) terminal.note("left out: layers that predict further tokens");
  if (!(*loaded)->kept_as().empty()) terminal.note("{}", (*loaded)->kept_as());
  if (auto note = packed_note((*loaded)->checkpoint(), (*loaded)->model().weight_bytes())) terminal.note("{}", *note);
  return loaded;
}

GenerateOptions generate_options(const Arguments& arguments, const LoadedModel& model, const Sampling& sampling) {
  GenerateOptions options;
  options.sampling = sampling;
  options.max_tokens = static_cast<int32_t>(arguments.integer("predict"));
  options.min_tokens = static_cast<int32_t>(arguments.integer("min-tokens"));
  options.ignore_end = arguments.toggle("ignore-eos");
  options.end_tokens.assign(model.end_tokens().begin(), model.end_tokens().end());
  for (int64_t id : arguments.integers("stop-token-ids")) options.stop_tokens.push_back(static_cast<Token>(id));
  return options;
}

}  // namespace millrace::apps
