#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "apps/cli/interrupt.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/flags.h"
#include "base/file.h"
#include "base/json.h"
#include "eval/embed_golden.h"
#include "eval/golden.h"
#include "eval/head_golden.h"
#include "model/adapter.h"
#include "session/loaded_model.h"
#include "tensor/hugging_face.h"

namespace millrace::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char *kGoldenFile = "golden.safetensors", *kAdapterFile = "adapter_config.json";

struct Case {
  fs::path model, golden;
  fs::path adapter = {};  // empty: the model alone
  fs::path head = {};     // the same

  fs::path named() const { return !head.empty() ? head : adapter.empty() ? model : adapter; }
};

// One way of computing, and how near it has to come.
struct Precision {
  std::string name;  // as the table shows it
  std::string backend;
  Activations activations = Activations::float32;
  KvForm kv = DType::f32;
  GoldenRule rule = GoldenRule::float32;
};

struct Line {
  std::string model, precision;
  GoldenResult result;
  std::optional<EmbedResult> embed = {};  // of whole texts, instead
};

// An adapter's directory says where its model is, from there.
Result<Case> adapter_case(const fs::path& directory) {
  TRY(const std::string text, read_file(directory / kAdapterFile, size_t{16} << 20));
  TRY(const Json config, parse_json(text));
  TRY(const std::string base, get_string(config, "base_model_name_or_path", ""));
  return Case{directory / base, directory / kGoldenFile, directory};
}

// A directory with golden logits, or one whose subdirectories have them.
Result<void> find_cases(const fs::path& path, const std::string& golden, std::vector<Case>& cases) {
  std::error_code failure;
  if (!golden.empty()) {
    cases.push_back({path, golden});
    return {};
  }
  if (fs::exists(path / kGoldenFile, failure) && fs::exists(path / kAdapterFile, failure)) {
    TRY(Case one, adapter_case(path));
    cases.push_back(std::move(one));
    return {};
  }
  if (fs::exists(path / kGoldenFile, failure)) {
    cases.push_back({path, path / kGoldenFile});
    return {};
  }
  std::vector<Case> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, failure)) {
    const fs::path file = entry.path() / kGoldenFile;
    if (fs::exists(file, failure) && fs::exists(entry.path() / "config.json", failure))
      found.push_back({entry.path(), file});
    if (!fs::exists(file, failure) || !fs::exists(entry.path() / kAdapterFile, failure)) continue;
    TRY(Case one, adapter_case(entry.path()));
    found.push_back(std::move(one));
  }
  if (found.empty()) {
    return error(Code::not_found, "{}: has no {}, and neither has a model directory in it", path.string(), kGoldenFile);
  }
  std::sort(found.begin(), found.end(), [](const Case& a, const Case& b) { return a.named() < b.named(); });
  cases.insert(cases.end(), found.begin(), found.end());
  return {};
}

std::vector<Precision> precisions(const Arguments& arguments) {
  const std::string backend = arguments.text("backend");
  const std::optional<std::string> kv = arguments.maybe_text("kv");
  const KvForm kv_type = kv ? kv_form_from_name(*kv).value() : KvForm(DType::f16);
  const std::string kv_name = kv_type.name();
  std::vector<Precision> all;
  if (backend.starts_with("cuda")) {
    // FP8 and INT8 weights too: what rounding their inputs does is for `verify ops`, number by number.
    all.push_back({fmt::format("{}: 16-bit activations, KV {}", backend, kv_name), backend, Activations::float32,
                   kv_type, GoldenRule::reduced});
    return all;
  }
  if (backend != "cpu") {
    all.push_back({"reference: float32, KV F32", "reference", Activations::float32, DType::f32, GoldenRule::reference});
  }
  if (backend == "reference") return all;
  if (!kv || kv_type == DType::f32) {
    all.push_back({"cpu: float32, KV F32", "cpu", Activations::float32, DType::f32, GoldenRule::float32});
  }
  all.push_back(
      {fmt::format("cpu: fast activations, KV {}", kv_name), "cpu", Activations::fast, kv_type, GoldenRule::reduced});
  return all;
}

// Whether its weights are codes of some quantised checkpoint, by its config.
bool keeps_codes(const fs::path& model) {
  const auto file = Checkpoint::open(model);
  return file.ok() && quantisation_of(file->config()).has_value();
}

Result<GoldenResult> check(const Case& one, const Golden& golden, const Precision& precision, int threads) {
  LoadChoice choice{.path = one.model, .device = precision.backend};
  choice.cpu.threads = threads;
  choice.cpu.activations = precision.activations;
  ExecutorOptions options = golden_options(golden);
  options.kv = precision.kv;
  choice.context = options.context;
  TRY(auto loaded, LoadedModel::load(choice));
  TRY(auto executor, Executor::create(loaded->model(), loaded->backend(), options));
  if (!one.adapter.empty()) {
    TRY(const Adapter adapter, read_adapter(one.adapter, loaded->model().spec()));
    TRY(const int place, executor->load_adapter(adapter));
    executor->use_adapter(place, 1);
  }
  GoldenRule rule = precision.rule;
  if (rule == GoldenRule::reduced && keeps_codes(one.model))
    rule = precision.activations == Activations::fast ? GoldenRule::codes_of_codes : GoldenRule::codes;
  return check_golden(*executor, golden, rule);
}

Result<EmbedResult> check(const Case& one, const EmbedGolden& golden, const Precision& precision, int threads) {
  LoadChoice choice{.path = one.model, .device = precision.backend};
  choice.cpu.threads = threads;
  choice.cpu.activations = precision.activations;
  EncoderOptions options = embed_golden_options(golden);
  options.kv = precision.kv;
  choice.context = options.context;
  TRY(auto loaded, LoadedModel::load(choice));
  TRY(auto encoder, Encoder::create(loaded->model(), loaded->backend(), options));
  return check_embed_golden(*encoder, golden, precision.rule);
}

Result<GoldenResult> check_head(const Case& one, const Precision& precision, int threads) {
  LoadChoice choice{.path = one.model, .device = precision.backend};
  choice.cpu.threads = threads;
  choice.cpu.activations = precision.activations;
  TRY(auto loaded, LoadedModel::load(choice));
  TRY(const HeadGolden golden, read_head_golden(one.golden));
  TRY(const Checkpoint file, Checkpoint::open(one.head));
  TRY(const auto head, Head::load(file, loaded->model(), loaded->backend()));
  return check_head_golden(*head, loaded->backend(), precision.kv, golden, precision.rule);
}

// What a case comes to, computed one way.
Line line_of(const Case& one, const Precision& way, int threads) {
  const fs::path path = one.named();
  Line line{.model = path.filename().empty() ? path.string() : path.filename().string(), .precision = way.name};
  auto put = [&](const auto& result, auto& place) {
    if (result.ok()) {
      place = *result;
    } else {
      line.result.failure = result.error().message;
    }
  };
  if (!one.head.empty()) {
    put(check_head(one, way, threads), line.result);
  } else if (is_embed_golden(one.golden)) {
    auto golden = read_embed_golden(one.golden);
    put(golden.ok() ? check(one, *golden, way, threads) : Result<EmbedResult>(golden.error()), line.embed);
    if (line.embed) line.result.failure = line.embed->failure;
  } else {
    auto golden = read_golden(one.golden);
    put(golden.ok() ? check(one, *golden, way, threads) : Result<GoldenResult>(golden.error()), line.result);
  }
  return line;
}

std::string greedy_text(const GoldenResult& result) {
  if (result.greedy == 0) return "none stored";
  if (result.first_difference < 0) return fmt::format("{} equal", result.greedy);
  return fmt::format("{} of {}, first at {} (gap {:.3f})", result.equal, result.greedy, result.first_difference + 1,
                     static_cast<double>(result.gap_there));
}

// JSON has no NaN.
Json number_json(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json line_json(const Line& line) {
  const GoldenResult& r = line.result;
  if (line.embed) {
    return JsonObject{{"model", valid_utf8(line.model)},
                      {"precision", line.precision},
                      {"passed", r.passed()},
                      {"failure", valid_utf8(r.failure)},
                      {"texts", line.embed->texts},
                      {"least_cosine", number_json(line.embed->cosine)},
                      {"max_difference", number_json(line.embed->difference)}};
  }
  JsonObject out = {{"model", valid_utf8(line.model)},
                    {"precision", line.precision},
                    {"passed", r.passed()},
                    {"failure", valid_utf8(r.failure)},
                    {"tokens", r.distance.rows},
                    {"max_difference", number_json(r.distance.largest_difference)},
                    {"max_relative_difference", number_json(r.distance.relative_difference())},
                    {"mean_kl", number_json(r.distance.kl_mean())},
                    {"max_kl", number_json(r.distance.kl_max)},
                    {"greedy_tokens", r.greedy},
                    {"greedy_equal", r.equal}};
  out["first_difference"] = r.first_difference < 0 ? Json() : Json(r.first_difference);
  if (r.first_difference >= 0) out["gap_there"] = r.gap_there;
  return out;
}

void print_lines(const Terminal& terminal, const std::vector<Line>& lines) {
  using enum Table::Align;
  Table table({{"model"},
               {"precision"},
               {"max diff", right},
               {"of largest", right},
               {"mean KL", right},
               {"max KL", right},
               {"greedy"},
               {"result"}});
  for (const Line& line : lines) {
    const LogitDistance& d = line.result.distance;
    const bool measured = d.rows > 0;
    auto number = [&](double value) { return measured ? fmt::format("{:.2e}", value) : std::string("-"); };
    const std::string verdict = line.result.passed()
                                    ? terminal.out_paint(Style::green, "pass")
                                    : terminal.out_paint(Style::red, "FAIL: ") + printable(line.result.failure);
    if (line.embed) {
      const EmbedResult& e = *line.embed;
      table.row({printable(line.model), line.precision, fmt::format("{:.2e}", e.difference),
                 fmt::format("{:.2e}", e.largest > 0 ? e.difference / e.largest : 0.0), "-", "-",
                 fmt::format("{}, cosine {:.7f}", counted(e.texts, "text"), e.cosine), verdict});
      continue;
    }
    table.row({printable(line.model), line.precision, number(d.largest_difference), number(d.relative_difference()),
               number(d.kl_mean()), number(d.kl_max), measured ? greedy_text(line.result) : "-", verdict});
  }
  table.print(terminal);
}

Result<int> run_verify_golden(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  std::vector<Case> cases;
  for (const std::string& path : arguments.operands("DIR")) TRY_VOID(find_cases(path, arguments.text("golden"), cases));
  for (Case& one : cases) {
    if (!is_head_golden(one.golden)) continue;
    if (!arguments.given("target"))
      return error(Code::invalid, "{}: is a head: say for which model (--target)", one.model.string());
    one.head = std::exchange(one.model, arguments.text("target"));
  }
  const std::vector<Precision> ways = precisions(arguments);
  std::vector<Line> lines;
  Progress progress(terminal, "checking", cases.size() * ways.size(), Progress::Unit::count);
  for (const Case& one : cases) {
    for (const Precision& way : ways) {
      lines.push_back(line_of(one, way, static_cast<int>(arguments.integer("threads"))));
      progress.update(lines.size());
    }
  }
  const auto failed = std::count_if(lines.begin(), lines.end(), [](const Line& line) { return !line.result.passed(); });
  if (arguments.toggle("json")) {
    JsonArray array;
    for (const Line& line : lines) array.push_back(line_json(line));
    terminal.print("{}\n", to_text(JsonObject{{"failed", failed}, {"lines", std::move(array)}}));
  } else {
    print_lines(terminal, lines);
    terminal.note("{} of {} passed", lines.size() - static_cast<size_t>(failed),
                  counted(static_cast<int64_t>(lines.size()), "check"));
  }
  return failed == 0 ? kExitOk : kExitFailure;
}

}  // namespace

Verb verify_golden_verb() {
  return {
      .name = "verify golden",
      .summary = "compare logits with those another implementation stored",
      .group = "Measure and check",
      .operands =
          {{.name = "DIR",
            .many = true,
            .help = "a directory of a model, a LoRA adapter or a head with golden.safetensors, or a folder of such"}},
      .flags = {{.name = "backend",
                 .alias = "--device",
                 .kind = Kind::text,
                 .value = "NAME",
                 .otherwise = "all",
                 .choices = "reference|cpu|cuda|all",
                 .help = "what computes; all: reference and cpu"},
                {.name = "kv",
                 .kind = Kind::text,
                 .value = "TYPE",
                 .choices = kKvForms,
                 .help = "numbers that the cpu backend keeps keys and values in (default: F32 with float32 "
                         "activations, F16 with fast ones)"},
                {.name = "golden",
                 .kind = Kind::path,
                 .value = "FILE",
                 .help = "the stored logits, where they do not lie in DIR"},
                {.name = "target",
                 .kind = Kind::path,
                 .value = "MODEL",
                 .help = "the model that a head (MTP, EAGLE-3) guesses for, where DIR is one"},
                {.name = "threads",
                 .alias = "-t",
                 .kind = Kind::integer,
                 .value = "N",
                 .otherwise = "0",
                 .least = 0,
                 .most = 1024,
                 .help = "worker threads; 0: one for every processor"},
                {.name = "json", .help = "as a JSON object"}},
      .examples = {{"verify golden tests/golden/llama-gqa", "one model"},
                   {"verify golden models --backend cpu --kv bf16",
                    "all below a folder, with bfloat16 keys and values"}},
      .notes =
          "Passing means: reference within 1e-3 of the largest |logit|; cpu with float32 activations and keys a "
          "mean KL of at "
          "most 1e-5; with fast activations or fewer bits in keys and values a mean KL of at most 1e-3 and a "
          "largest of 5e-3 (weights that a checkpoint keeps in codes: 1e-2 with 16 bits, and with inputs of eight a "
          "median of 1e-2 alone; with experts, where rounding may turn a "
          "close choice between two of them, a median of "
          "5e-3 and a mean of 0.1); and the same greedy "
          "tokens wherever the stored gap between the two likeliest exceeds 0.1 (float32) or 0.4 (fewer bits). "
          "Exit code 1 if "
          "anything fails. Fast activations are what each weight format is multiplied quickest in: bfloat16 for "
          "plain numbers, "
          "int8 in groups for quantised ones. Vectors and scores of whole texts (embeddings, rerankers): a cosine of "
          "at least 0.9999 in float32 and 0.999 in fewer bits, scores within 1e-3 and 2e-2, and the same bits alone "
          "and in company.",
      .run = run_verify_golden};
}

}  // namespace millrace::apps
