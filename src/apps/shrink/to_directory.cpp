#include "apps/shrink/to_directory.h"

#include <filesystem>
#include <optional>
#include <system_error>

#include "apps/cli/interrupt.h"
#include "apps/cli/output.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/files/writing.h"
#include "apps/shrink/calibrated.h"
#include "apps/shrink/ending.h"
#include "apps/shrink/texts.h"
#include "model/directory.h"
#include "shrink/imatrix.h"
#include "tensor/checkpoint.h"

namespace millrace::apps {
namespace {

namespace fs = std::filesystem;

struct Layout {
  PackLayout layout = PackLayout::gptq;
  CodeGrid grid;
};

Result<Layout> chosen_layout(const Arguments& arguments, const Checkpoint& checkpoint) {
  const std::string to = arguments.text("to");
  const auto bits = static_cast<int>(arguments.integer("bits"));
  const int64_t group = arguments.integer("group");
  Layout out;
  out.grid = {.bits = bits, .group = group, .symmetric = arguments.toggle("sym") || bits == 8};
  if (bits != 4 && bits != 8) return error(Code::invalid, "--bits {}: 4 and 8 are written", bits);
  if (group != 0 && (group < 16 || group % 8 != 0))
    return error(Code::invalid, "--group {}: expected 0 (a whole row) or a multiple of 8 from 16 on", group);
  if (to == "gptq") {
    out.grid.least_zero = 1;  // zero points are stored less one, and 15 would be read as 16 by some
    return out;
  }
  if (to == "awq") {
    out.layout = PackLayout::awq;
    if (bits != 4 || arguments.toggle("sym"))
      return error(Code::invalid, "awq has 4 bits and zero points: leave --bits and --sym out, or use --to gptq");
    return out;
  }
  // Codes of 8 bits are for products of 8 bits by 8: a scale a row.
  out.layout = bits == 8 ? PackLayout::int8 : PackLayout::packed;
  if (bits == 8) out.grid.group = 0;
  for (const StoredTensor& each : checkpoint.tensors()) {
    if (each.type == DType::bf16) out.grid.scale_type = DType::bf16;
  }
  return out;
}

Result<void> check_directory(const fs::path& target, bool replace) {
  std::error_code ignored;
  const fs::path folder = target.parent_path();
  if (!folder.empty() && !fs::is_directory(folder, ignored))
    return error(Code::not_found, "{}: no such directory; create it first", folder.string());
  if (!fs::exists(target, ignored)) return {};
  if (!replace) return check_absent(target);
  if (!fs::is_regular_file(target / "config.json", ignored))
    return error(Code::invalid, "{}: is no model's directory, so it is not replaced; choose another name",
                 target.string());
  return {};
}

// Groups whose every part can be written back.
FoldPlan writable_plan(const ModelSource& source) {
  FoldPlan plan = fold_plan(source.spec());
  const size_t before = plan.groups.size();
  std::erase_if(plan.groups, [&](const FoldGroup& group) {
    bool all = can_write(source, group.giver);
    for (const Slot& reader : group.readers) all = all && can_write(source, reader);
    return !all;
  });
  if (plan.groups.size() < before)
    plan.left_out.push_back(fmt::format("{} of columns whose tensors are not written one by one",
                                        counted(static_cast<int64_t>(before - plan.groups.size()), "group")));
  return plan;
}

Result<ColumnWeights> importance_of_file(const Arguments& arguments, const ModelSource& source) {
  TRY(const Checkpoint file, Checkpoint::open(arguments.text("imatrix")));
  TRY(const Importance importance, read_importance(file));
  return ColumnWeights::match(importance, source, true);
}

// With a text: as --method says, judged on held-out text.
struct Chosen {
  Student student;
  std::unique_ptr<Bench> bench;
};

Result<Chosen> choose(const Arguments& arguments, const ModelSource& source, const Rounding& rounding) {
  Chosen out = {.student = {source, {}}, .bench = nullptr};
  std::optional<ColumnWeights> importance;
  if (arguments.given("imatrix")) {
    TRY(importance, importance_of_file(arguments, source));
  }
  if (!arguments.given("calibrate")) {
    Team team(writing_of(arguments).workers);
    TRY_VOID(round_matrices(team, source, {}, rounding, importance ? &*importance : nullptr, nullptr, out.student));
    return out;
  }
  TRY(out.bench, open_bench(arguments, std::string(arguments.operand("IN"))));
  TRY_VOID(open_journal(arguments, *out.bench, arguments.operand("OUT"),
                        fmt::format("convert --to {} {} {} {} {} {}", arguments.text("to"), arguments.integer("bits"),
                                    arguments.integer("group"), arguments.toggle("sym"), arguments.text("method"),
                                    arguments.text("imatrix"))));
  if (!importance) {
    TRY(importance, measured_importance(arguments, *out.bench, source));
  }
  TRY_VOID(quantise_calibrated(arguments, *out.bench, out.student, rounding, writable_plan(source), *importance));
  return out;
}

Result<DirectoryReport> write(const Arguments& arguments, const Student& student, const Layout& layout,
                              const fs::path& target) {
  DirectoryOptions options = {.layout = layout.layout, .grid = layout.grid};
  options.maker = "millrace";
  options.codes = [&](const Slot& slot, int64_t expert) -> const GroupedCodes* {
    const auto found = student.codes.find(code_name(slot, expert));
    return found != student.codes.end() ? found->second.get() : nullptr;
  };
  std::optional<Progress> progress;
  options.progress = [&](uint64_t done, uint64_t total) {
    if (!progress) progress.emplace(arguments.terminal(), "writing", total, Progress::Unit::bytes);
    progress->update(done);
    return !Interruptible::interrupted();
  };
  std::error_code failed;
  fs::path old = target;
  old += ".old";
  const bool replaces = fs::exists(target, failed);
  fs::path made = target;
  if (replaces) made += ".new";
  TRY(DirectoryReport report, write_directory(student.source, made, options));
  if (replaces) {
    fs::rename(target, old, failed);
    if (!failed) fs::rename(made, target, failed);
    if (failed) return error(Code::io, "{}: cannot be replaced: {}", target.string(), failed.message());
    fs::remove_all(old, failed);
  }
  return report;
}

// What was written, read again and judged.
Result<void> judge_written(const Arguments& arguments, Bench& bench, const fs::path& target, uint64_t bytes) {
  TRY(const Checkpoint written, Checkpoint::open(target));
  TRY(const ModelSource source, ModelSource::open(written));
  StepOptions options = step_options(arguments, bench);
  options.rounded_inputs = arguments.text("method") == "smoothquant";
  TRY(const Trial trial, try_out({source, {}}, *bench.judge, options));
  return print_ending(
      arguments,
      {.stages = {{"result", bytes, trial.judged}}, .before = bench.teacher.get(), .before_path = {}, .after = target});
}

Result<int> run(const Arguments& arguments) {
  const fs::path path = arguments.operand("IN"), target = arguments.operand("OUT");
  const Terminal& terminal = arguments.terminal();
  TRY(const Checkpoint checkpoint, Checkpoint::open(path));
  if (checkpoint.kind() != Checkpoint::Kind::hugging_face)
    return error(Code::invalid,
                 "{}: --to needs a Hugging Face directory: config.json and the tokenizer's files come from it",
                 path.string());
  TRY_VOID(check_directory(target, writing_of(arguments).replace));
  TRY(const Layout layout, chosen_layout(arguments, checkpoint));
  TRY(const ModelSource source, ModelSource::open(checkpoint));
  const CodeRounding rounding(layout.grid,
                              [&](const Slot& slot) { return can_pack(source, slot, layout.layout, layout.grid); });
  int packed = 0;
  for (const Slot& slot : slots(source.spec())) packed += rounding.takes(slot);
  if (packed == 0)
    return error(Code::unsupported,
                 "{}: no matrix can be packed so: tensors of plain numbers, [outputs, inputs], in whole groups of {} "
                 "are needed; try another --group, or write a GGUF file",
                 path.string(), layout.grid.group);
  Interruptible scope;
  TRY(const Chosen chosen, choose(arguments, source, rounding));
  TRY(const DirectoryReport report, write(arguments, chosen.student, layout, target));
  terminal.note("{}: {} packed, {} of layers kept as they are, {}, {}", target.string(),
                counted(report.packed, "matrix", "matrices"), report.kept.size(), counted(report.tensors, "tensor"),
                human_bytes(report.bytes));
  if (chosen.bench == nullptr) {
    terminal.note("{}", unmeasured_note(path, target));
    return kExitOk;
  }
  chosen.bench->journal->remove();
  TRY_VOID(judge_written(arguments, *chosen.bench, target, report.bytes));
  return kExitOk;
}

}  // namespace

std::vector<Flag> layout_flags() {
  return {{.name = "to",
           .kind = Kind::text,
           .value = "LAYOUT",
           .otherwise = "gguf",
           .choices = "gguf|gptq|awq|compressed-tensors",
           .help = "what is written: a GGUF file, or a Hugging Face directory with codes and scales that other engines "
                   "load (from such a directory)"},
          {.name = "bits",
           .kind = Kind::integer,
           .value = "N",
           .otherwise = "4",
           .least = 4,
           .most = 8,
           .help = "with --to: bits of a code, 4 or 8; 8 with compressed-tensors is W8A8"},
          {.name = "group",
           .kind = Kind::integer,
           .value = "N",
           .otherwise = "128",
           .least = 0,
           .most = 65536,
           .help = "with --to: inputs that share a scale; 0 means a whole row"},
          {.name = "sym", .help = "with --to: scales without zero points"}};
}

Result<int> convert_to_directory(const Arguments& arguments) {
  if (arguments.given("type") || arguments.given("budget") || arguments.given("tensor-type"))
    return wrong_use(arguments, "--type, --budget and --tensor-type are of GGUF files: leave them out with --to");
  if (arguments.text("method") != "round" && !arguments.given("calibrate"))
    return wrong_use(arguments, "--method other than round needs a text: --calibrate TEXT");
  auto done = run(arguments);
  if (!done.ok() && Interruptible::interrupted()) return say_stopped(arguments, arguments.operand("OUT"));
  return done;
}

}  // namespace millrace::apps
