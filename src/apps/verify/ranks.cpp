#include <algorithm>

#include "apps/cli/flags.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/flags.h"
#include "apps/run/transport.h"
#include "base/json.h"
#include "base/rng.h"
#include "eval/ranks_check.h"
#include "model/shapes.h"
#include "session/device.h"
#include "session/loaded_model.h"

namespace millrace::apps {
namespace {

struct Line {
  int ranks = 1;
  std::vector<RanksWay> ways;
  std::vector<Ranked::Held> held;
  double sent_token = 0;  // bytes a rank gives to the others for one token
  std::string differs;    // where from one rank; empty: nowhere
};

std::vector<Token> random_tokens(int64_t count, int32_t vocab, uint64_t seed) {
  std::vector<Token> tokens;
  for (int64_t i = 0; i < count; ++i) {
    const auto words =
        philox({static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}, {static_cast<uint32_t>(i), 0, 0, 0});
    tokens.push_back(static_cast<Token>(words[0] % static_cast<uint32_t>(vocab)));
  }
  return tokens;
}

// A model on ranks, from a file or of random weights.
struct Opened {
  std::unique_ptr<LoadedModel> loaded;
  std::unique_ptr<Ranked> random;

  const Ranked& ranked() const { return loaded != nullptr ? *loaded->ranked() : *random; }
  Backend& backend() { return loaded != nullptr ? loaded->backend() : random->backend(); }
};

// Alone: without ranks, to compare with.
Result<Opened> open(const Arguments& arguments, int ranks, bool alone) {
  TRY(const std::string device, rank_device(arguments));
  TRY(const RankCut cut, rank_cut(arguments));
  RankChoice choice{.device = alone ? arguments.text("device") : device,
                    .cpu = {.threads = static_cast<int>(arguments.integer("threads"))},
                    .ranks = std::max(1, ranks),
                    .mpi = !alone && over_mpi(arguments),
                    .cut = cut};
  Opened opened;
  if (const auto shape = arguments.maybe_text("shape"); shape.has_value() && !shape->empty()) {
    TRY(ModelSpec spec, named_shape(*shape));
    const std::optional<DType> type = dtype_from_name(arguments.text("type"));
    if (!type || format(*type).from_float == nullptr)
      return error(Code::invalid, "weights cannot be made in '{}'; try Q8_0, Q4_0 or BF16", arguments.text("type"));
    spec.layers.resize(std::min(spec.layers.size(), static_cast<size_t>(arguments.integer("layers"))));
    TRY(opened.random, Ranked::open(choice, [&](Backend& backend) { return Model::random(spec, *type, 1, backend); }));
    return opened;
  }
  TRY(auto path, model_path(arguments));
  LoadChoice file{.path = path, .device = choice.device, .cpu = choice.cpu, .context = arguments.integer("tokens")};
  TRY(file.keep, kv_keep(arguments));
  file.ranks = choice.ranks;
  file.mpi = choice.mpi;
  file.cut = choice.cut;
  TRY(opened.loaded, LoadedModel::load(file));
  return opened;
}

Result<Line> run_one(const Arguments& arguments, int ranks, bool alone, bool plant) {
  TRY(Opened opened, open(arguments, ranks, alone));
  const Ranked& ranked = opened.ranked();
  const int32_t vocab = ranked.model().spec().vocab;
  std::vector<Token> tokens =
      random_tokens(arguments.integer("tokens"), vocab, static_cast<uint64_t>(arguments.integer("seed")));
  if (plant) tokens.back() = (tokens.back() + 1) % vocab;
  Line line{.ranks = ranked.ranks(), .ways = {}, .held = {}, .differs = {}};
  KvForm kv = DType::f16;
  if (opened.loaded != nullptr)
    kv = kv_type(arguments, *opened.loaded);
  else if (arguments.text("kv-type") != "auto")
    kv = kv_form(arguments);
  TRY(line.ways, run_ranks_ways(ranked.model(), opened.backend(), tokens, kv));
  line.held = ranked.held();
  size_t rows = 0;
  for (const RanksWay& way : line.ways) rows += way.rows.size();
  line.sent_token = static_cast<double>(ranked.sent()) / static_cast<double>(std::max<size_t>(1, rows));
  return line;
}

Ranked::Held most(const Line& line) {
  Ranked::Held held;
  for (const Ranked::Held& one : line.held) held = {std::max(held.weights, one.weights), std::max(held.kv, one.kv)};
  return held;
}

std::string beside(int64_t bytes, int64_t whole) {
  return fmt::format("{} ({:.0f} %)", human_bytes(static_cast<uint64_t>(bytes)),
                     100.0 * static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(1, whole)));
}

void print(const std::vector<Line>& lines, const Terminal& terminal) {
  using Align = Table::Align;
  Table table({{"ranks", Align::right},
               {"weights of a rank", Align::right},
               {"KV of a rank", Align::right},
               {"sent by a rank for a token", Align::right},
               {"rows", Align::right},
               {"same bits as one rank"}});
  const Ranked::Held alone = most(lines[0]);
  for (const Line& line : lines) {
    size_t rows = 0;
    for (const RanksWay& way : line.ways) rows += way.rows.size();
    table.row({fmt::format("{}", line.ranks), beside(most(line).weights, alone.weights),
               beside(most(line).kv, alone.kv), human_bytes(static_cast<uint64_t>(line.sent_token)),
               fmt::format("{}", rows),
               line.differs.empty() ? terminal.out_paint(Style::green, "yes")
                                    : terminal.out_paint(Style::red, "NO, " + line.differs)});
  }
  table.print(terminal);
}

JsonArray json(const std::vector<Line>& lines) {
  JsonArray array;
  for (const Line& line : lines)
    array.push_back(JsonObject{{"ranks", line.ranks},
                               {"weight_bytes", most(line).weights},
                               {"kv_bytes", most(line).kv},
                               {"sent_bytes_per_token", line.sent_token},
                               {"same", line.differs.empty()}});
  return array;
}

Result<int> run_verify_ranks(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  const bool plant = arguments.toggle("plant");
  std::vector<int64_t> counts = arguments.integers("ranks");
  if (over_mpi(arguments)) counts = {0};  // as many as there are
  if (over_nccl(arguments)) {
    TRY(const int gpus, gpus_for_ranks(kNcclDevice));
    counts = {std::max(1, gpus)};  // one for each
  }
  std::vector<Line> lines;
  TRY(Line alone, run_one(arguments, 1, true, false));
  lines.push_back(std::move(alone));
  for (const int64_t ranks : counts) {
    TRY(Line line, run_one(arguments, static_cast<int>(ranks), false, plant && lines.size() == 1));
    line.differs = first_difference(lines[0].ways, line.ways);
    lines.push_back(std::move(line));
  }
  const auto differences =
      std::count_if(lines.begin(), lines.end(), [](const Line& line) { return !line.differs.empty(); });
  if (arguments.toggle("json")) {
    terminal.print("{}\n", to_text(JsonObject{{"differences", differences}, {"ranks", json(lines)}}));
  } else {
    print(lines, terminal);
    terminal.note("{} in {} of ranks, {} to compute the same text each", counted(differences, "difference"),
                  counted(static_cast<int64_t>(lines.size()) - 1, "number"),
                  counted(static_cast<int64_t>(lines[0].ways.size()), "way"));
  }
  if (plant && differences == 0) terminal.fail("the changed token did not show: the check is blind");
  return differences == 0 && !plant ? kExitOk : kExitFailure;
}

}  // namespace

Verb verify_ranks_verb() {
  return {.name = "verify ranks",
          .summary = "check that a model over several ranks gives the bits of one",
          .group = "Measure and check",
          .flags = joined(
              {{model_flag(), text_flag("shape", "NAME", "", "", "random weights of a known shape instead of a file"),
                text_flag("type", "FORMAT", "Q8_0", "", "weight format for --shape"),
                integer_flag("layers", "", "2", 1, 1000, "of the shape, the first so many"), device_flag(),
                integer_flag("threads", "-t", "0", 0, 1024, "of all ranks together; 0: one for every processor"),
                by_commas(integer_flag("ranks", "", "2,4", 2, kMostRanks, "numbers of ranks to compare with one"))},
               {pipeline_flag(), whole_experts_flag(), transport_flag()},
               kv_flags(),
               {integer_flag("tokens", "-n", "48", 8, 4096, "tokens of the text"),
                integer_flag("seed", "-s", "3", 0, 1e12, "of the text"),
                {.name = "plant", .help = "also change one token, which must be found: exit code 1"},
                {.name = "json", .help = "as a JSON object"}}}),
          .examples = {{"verify ranks", "the shipped model on 2 and on 4 ranks"},
                       {"verify ranks -m model.gguf --ranks 2,3,8", "another"},
                       {"verify ranks --shape llama-3.2-1b --type Q4_0", "random weights"}},
          .notes =
              "A random text goes through the model whole, seven tokens at a time, one at a time, and in a crowd of "
              "three. The logits of every token must have the same bits as on one rank. Also said: what the rank with "
              "most holds of weights and of the cache, and how much it sends. Exit code 1 if a bit differs.",
          .run = run_verify_ranks};
}

}  // namespace millrace::apps
