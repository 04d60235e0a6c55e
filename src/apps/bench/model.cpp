#include "apps/bench/model.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "apps/bench/rows.h"
#include "apps/cli/flags.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/run/flags.h"
#include "apps/run/transport.h"
#include "backend/cpu/cpu.h"
#include "base/json.h"
#include "machine/stolen.h"
#include "model/adapter.h"
#include "model/convert.h"
#include "model/shapes.h"
#include "session/device.h"
#include "session/ranked.h"

namespace millrace::apps {
namespace {

// What is timed: a backend with a model on it.
struct Subject {
  std::string name, type;
  std::unique_ptr<Ranked> ranked;
};

std::string main_type(const Checkpoint& checkpoint) {
  std::vector<int64_t> bytes(kDTypes);
  for (const StoredTensor& tensor : checkpoint.tensors())
    bytes[static_cast<size_t>(tensor.type)] += static_cast<int64_t>(tensor.bytes.size());
  auto most = std::max_element(bytes.begin(), bytes.end()) - bytes.begin();
  return std::string(format(static_cast<DType>(most)).name);
}

Result<std::unique_ptr<Subject>> open_subject(const Arguments& arguments, int threads) {
  auto subject = std::make_unique<Subject>();
  bool exact = arguments.text("activations") == "float32";
  CpuOptions options = {.threads = threads, .activations = exact ? Activations::float32 : Activations::fast};
  TRY(const std::string device, rank_device(arguments));
  TRY(const RankCut cut, rank_cut(arguments));
  const RankChoice choice{
      .device = device, .cpu = options, .ranks = ranks_of(arguments), .mpi = over_mpi(arguments), .cut = cut};
  if (auto shape = arguments.maybe_text("shape"); shape.has_value()) {
    TRY(ModelSpec spec, named_shape(*shape));
    TRY(const FormOf forms, random_forms(arguments.text("type"), spec));
    subject->name = *shape;
    const std::optional<DType> type = dtype_from_name(arguments.text("type"));
    subject->type = type ? std::string(format(*type).name) : arguments.text("type");
    TRY(subject->ranked,
        Ranked::open(choice, [&](Backend& backend) { return Model::random(spec, forms, 1, backend); }));
    return subject;
  }
  TRY(std::filesystem::path path, model_path(arguments));
  TRY(const Checkpoint checkpoint, Checkpoint::open(path));
  subject->name = model_name(arguments, path);
  subject->type = main_type(checkpoint);
  TRY(subject->ranked, Ranked::open(choice, [&](Backend& backend) { return Model::load(checkpoint, backend); }));
  return subject;
}

Result<void> measure(const Arguments& arguments, const std::vector<StepTest>& tests, int threads,
                     std::vector<StepRow>& rows) {
  const Terminal& terminal = arguments.terminal();
  TRY(auto subject, open_subject(arguments, threads));
  TRY(Machine machine,
      measure_device(arguments.text("device"), {.threads = threads, .remeasure = arguments.toggle("remeasure")}));
  const KvForm kv = kv_type(arguments.text("kv"), subject->ranked->model(), subject->ranked->backend());
  TRY(auto executor, Executor::create(subject->ranked->model(), subject->ranked->backend(),
                                      options_for(tests, step_rows(arguments, "ubatch-size", 512), kv)));
  std::vector<int> places;
  const int64_t adapters = arguments.integer("adapters");
  for (int64_t i = 0; i < adapters; ++i) {
    const auto rank = static_cast<int32_t>(arguments.integer("adapter-rank"));
    TRY(const int place,
        executor->load_adapter(random_adapter(subject->ranked->model().spec(), rank, static_cast<uint64_t>(i) + 1)));
    places.push_back(place);
  }
  int total = static_cast<int>(tests.size() * static_cast<size_t>(arguments.integer("repetitions")));
  Progress progress(terminal, fmt::format("{} threads", threads), static_cast<uint64_t>(total), Progress::Unit::count);
  int before = 0;
  const size_t first = rows.size();
  for (const StepTest& test : tests) {
    StepBenchOptions options = {.repetitions = static_cast<int>(arguments.integer("repetitions")),
                                .warm_up = arguments.toggle("warmup"),
                                .adapters = places,
                                .fast = arguments.text("activations") == "fast",
                                .progress = [&](int done, int) {
                                  progress.update(static_cast<uint64_t>(before + done));
                                  return !Interruptible::interrupted();
                                }};
    std::optional<StolenTime> stolen(std::in_place);
    TRY(StepResult result, run_step_test(*executor, test, machine, options));
    before += options.repetitions;
    if (result.floor.seconds > result.median_seconds()) {  // what it passed was no limit
      TRY(machine, measure_device(arguments.text("device"), {.threads = threads, .raise = true}));
      for (auto row = rows.begin() + static_cast<ptrdiff_t>(first); row != rows.end(); ++row) {  // nor was it theirs
        row->machine = machine;
        row->result.floor = floor_of(*executor, row->result.passes, machine, options.fast);
      }
      stolen.emplace();
      TRY(result, run_step_test(*executor, test, machine, options));
    }
    rows.push_back({subject->name, subject->type, kv.name(), machine.isa, subject->ranked->backend().description(),
                    threads, subject->ranked->model().weight_bytes(), subject->ranked->model().parameters(),
                    std::move(result), machine, stolen->share()});
  }
  return {};
}

// Every test once more, with adapters.
std::vector<StepTest> with_adapters(const std::vector<StepTest>& tests, int64_t adapters) {
  std::vector<StepTest> all;
  for (StepTest test : tests) {
    all.push_back(test);
    test.adapters = static_cast<int32_t>(adapters);
    if (adapters > 0) all.push_back(test);
  }
  return all;
}

// What adapters cost: each such row follows the one without.
void print_adapters(const Terminal& terminal, const std::vector<StepRow>& rows) {
  for (size_t i = 1; i < rows.size(); ++i) {
    if (rows[i].result.test.adapters == 0) continue;
    const double with = rows[i].result.best_seconds(), without = rows[i - 1].result.best_seconds();
    terminal.note("{}: {:+.1f} % time for the adapters (best of {})", rows[i].result.test.name(),
                  100 * (with / without - 1), rows[i].result.seconds.size());
  }
}

}  // namespace

std::vector<Flag> bench_flags() {
  Flag kv = text_flag("kv", "TYPE", "auto", kKvTypes,
                      "format of keys and values; auto: bf16 where that is faster and the weights are not F16 or F32");
  kv.alias = "--cache-type --kv-type";
  Flag output = text_flag("output", "FORM", "md", "md|csv|json", "a table, CSV or JSON");
  output.alias = "-o";
  return joined(
      {hub_flags(),
       {model_flag(),
        text_flag("shape", "NAME", "", "", "random weights of a known shape instead of a file"),
        text_flag(
            "type", "FORMAT", "Q8_0", "",
            "weight format for --shape; Q4_K_M: the mix that such files have, Q4_K_M+BF16: with that for its Q6_K"),
        device_flag(),
        ranks_flag(),
        pipeline_flag(),
        whole_experts_flag(),
        transport_flag(),
        kv,
        integer_flag("ubatch-size", "-ub", "0", 0, 65536, "most tokens of one pass; 0: 512, on a GPU 2048"),
        integer_flag("adapters", "", "0", 0, 64, "measure each test again with so many LoRA adapters in turn"),
        integer_flag("adapter-rank", "", "16", 1, 512, "their rank; they change all products of all layers"),
        {.name = "warmup", .otherwise = "true", .help = "one run before the first that counts"}},
       timing_flags(),
       {output}});
}

Result<FormOf> random_forms(std::string_view name, const ModelSpec& spec) {
  if (dtype_from_name(name)) {
    TRY(const DType type, weight_format(name));
    return FormOf([type](const Slot&) { return type; });
  }
  const size_t plus = name.find('+');
  TRY(const FileType mix, FileType::parse(name.substr(0, plus)));
  std::optional<DType> instead;
  if (plus != name.npos) {
    TRY(instead, weight_format(name.substr(plus + 1)));
  }
  return FormOf([&spec, mix, instead](const Slot& slot) {
    const DType type = stored_type(spec, slot, mix);
    return type == DType::q6_k && instead ? *instead : type;
  });
}

Result<int> run_bench(const Arguments& arguments, const std::vector<StepTest>& plain) {
  Interruptible interruptible;
  const std::vector<StepTest> tests = with_adapters(plain, arguments.integer("adapters"));
  const Terminal& terminal = arguments.terminal();
  std::vector<StepRow> rows;
  for (int threads : thread_counts(arguments)) {
    auto measured = measure(arguments, tests, threads, rows);
    if (!measured.ok() && Interruptible::interrupted()) return interrupted_error();
    TRY_VOID(std::move(measured));
  }
  std::string output = arguments.text("output");
  if (output == "json") {
    JsonArray all;
    for (const StepRow& row : rows) all.push_back(row_json(row));
    terminal.print("{}\n", to_pretty_text(all));
  } else if (output == "csv") {
    print_csv(terminal, rows);
  } else {
    print_rows(terminal, rows);
    print_adapters(terminal, rows);
  }
  return kExitOk;
}

}  // namespace millrace::apps
