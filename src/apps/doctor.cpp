#include <algorithm>
#include <cmath>

#include "apps/build_info.h"
#include "apps/machine.h"
#include "apps/model_path.h"
#include "apps/terminal.h"
#include "apps/verbs.h"
#include "base/json.h"
#include "base/team.h"

namespace millrace::apps {
namespace {

// One line of the report. A hint says in plain words what could be better and how; without one all is well.
struct Finding {
  std::string_view part;
  std::string_view what;
  std::string found;
  std::string hint = "";
};

bool has(const Machine& machine, std::string_view feature) {
  const auto& all = machine.cpu_features;
  return std::find(all.begin(), all.end(), feature) != all.end();
}

// Integer matrix products are what quantised models are made of.
std::string cpu_hint(const Machine& machine) {
  if (has(machine, "i8mm") || has(machine, "avx512_vnni") || has(machine, "avx_vnni") || has(machine, "amx_int8"))
    return "";
  if (has(machine, "asimddp")) return "no i8mm: prompts are read at about half the speed of newer Arm processors";
  if (has(machine, "avx2")) return "no VNNI: quantised models run, but below what newer x86 processors reach";
  return "no AVX2 and no dot-product instructions: only the plain kernels run here, expect low speed";
}

void examine_cpu(const Machine& machine, std::vector<Finding>& report) {
  int usable = Team::processors();
  report.push_back({"cpu", "model", machine.cpu});
  report.push_back({"cpu", "features", fmt::format("{}", fmt::join(machine.cpu_features, " ")), cpu_hint(machine)});
  Finding count = {"cpu", "processors", fmt::format("{} usable of {}", usable, machine.processors)};
  if (machine.cpu_quota && *machine.cpu_quota + 0.01 < usable) {
    count.found += fmt::format(", time for {:.1f}", *machine.cpu_quota);
    count.hint = fmt::format("the control group allows {:.1f} processors of time: run with that many threads",
                             std::max(1.0, std::floor(*machine.cpu_quota)));
  }
  report.push_back(count);
  if (machine.numa_nodes && *machine.numa_nodes > 1) {
    report.push_back({"cpu", "memory nodes", fmt::format("{}", *machine.numa_nodes),
                      "memory of another node is slower: `numactl --interleave=all millrace ...` spreads it evenly"});
  }
  if (!machine.governor.empty()) {
    bool slow = machine.governor == "powersave" || machine.governor == "conservative";
    report.push_back({"cpu", "frequency governor", machine.governor,
                      slow ? "`cpupower frequency-set -g performance` gives steadier speed" : ""});
  }
}

void examine_memory(const Machine& machine, std::vector<Finding>& report) {
  Finding memory = {"memory", "total", human_bytes(machine.memory)};
  if (machine.memory_limit) {
    memory.found += fmt::format(", of which this control group may use {}", human_bytes(*machine.memory_limit));
    memory.hint = "the limit counts, not the machine's memory: a model must fit in it with its cache";
  }
  report.push_back(memory);
  bool tight = machine.memory_available * 10 < machine.memory;
  report.push_back({"memory", "available", human_bytes(machine.memory_available),
                    tight ? "less than a tenth is free: weights would be read from disk again and again" : ""});
  report.push_back({"memory", "swap", machine.swap == 0 ? "none" : human_bytes(machine.swap)});
  report.push_back({"memory", "page size", human_bytes(machine.page)});
  bool never = machine.transparent_huge_pages == "never";
  report.push_back({"memory", "huge pages on demand", machine.transparent_huge_pages,
                    never ? "`echo madvise > /sys/kernel/mm/transparent_hugepage/enabled` (as root) saves address "
                            "translation, some percent of speed on large models"
                          : ""});
  std::vector<std::string> sizes;
  for (uint64_t size : machine.huge_page_sizes) sizes.push_back(human_bytes(size));
  report.push_back({"memory", "huge page sizes", sizes.empty() ? "none" : fmt::format("{}", fmt::join(sizes, ", "))});
  report.push_back(
      {"memory", "may be locked", machine.locked_limit ? human_bytes(*machine.locked_limit) : "all of it"});
}

void examine_gpus(const Machine& machine, std::vector<Finding>& report) {
  if (machine.gpus.empty()) report.push_back({"gpu", "found", "none"});
  for (const Gpu& gpu : machine.gpus) {
    Finding finding = {"gpu", "found", gpu.name};
    if (!gpu.supported) {
      finding.hint = "not supported: Millrace uses NVIDIA GPUs only";
    } else if (!kBuildInfo.cuda) {
      finding.hint = "this build does not use it: build with `cmake --preset cuda` (needs the CUDA 13 toolkit)";
    }
    report.push_back(finding);
  }
  if (!machine.gpu_driver.empty()) report.push_back({"gpu", "driver", machine.gpu_driver});
}

void examine_build(std::vector<Finding>& report) {
  const BuildInfo& info = kBuildInfo;
  report.push_back({"build", "version", fmt::format("{} ({})", info.version, info.commit)});
  bool fast = info.build_type == "Release" || info.build_type == "RelWithDebInfo";
  report.push_back({"build", "type", fmt::format("{}, {}, {}", info.build_type, info.target, info.compiler),
                    fast && info.sanitizers.empty() ? "" : "made for testing, many times slower than Release"});
  report.push_back({"build", "text", info.text ? "yes" : "no",
                    info.text ? "" : "built without tokenizers and templates: configure with -DMILLRACE_TEXT=ON"});
  report.push_back({"build", "cuda", info.cuda ? "yes" : "no"});
  report.push_back({"build", "sanitizers", info.sanitizers.empty() ? "none" : std::string(info.sanitizers)});
  auto model = shipped_model();
  report.push_back({"build", "shipped model", model.ok() ? model->lexically_normal().string() : "not found",
                    model.ok() ? "" : "verbs need -m PATH"});
}

void print_json(const Terminal& terminal, const std::vector<Finding>& report) {
  JsonArray rows;
  for (const Finding& finding : report) {
    JsonObject row = {{"part", finding.part}, {"what", finding.what}, {"found", finding.found}};
    if (!finding.hint.empty()) row["hint"] = finding.hint;
    rows.push_back(std::move(row));
  }
  terminal.print("{}\n", to_pretty_text(rows));
}

void print_text(const Terminal& terminal, const std::vector<Finding>& report) {
  size_t column = 0;
  for (const Finding& finding : report) column = std::max(column, width(finding.what));
  std::string_view part;
  for (const Finding& finding : report) {
    if (finding.part != part) terminal.print("{}\n", terminal.out_paint(Style::bold, finding.part));
    part = finding.part;
    std::string mark =
        terminal.out_paint(finding.hint.empty() ? Style::green : Style::yellow, finding.hint.empty() ? "✓" : "!");
    terminal.print("  {} {:<{}}  {}\n", mark, finding.what, column, finding.found);
    if (!finding.hint.empty())
      terminal.print("    {:<{}}  {}\n", "", column, terminal.out_paint(Style::yellow, finding.hint));
  }
}

Result<int> run(const Arguments& arguments) {
  Machine machine = probe_machine();
  std::vector<Finding> report;
  examine_cpu(machine, report);
  examine_memory(machine, report);
  examine_gpus(machine, report);
  examine_build(report);
  const Terminal& terminal = arguments.terminal();
  arguments.toggle("json") ? print_json(terminal, report) : print_text(terminal, report);
  return kExitOk;
}

}  // namespace

Verb doctor_verb() {
  return {.name = "doctor",
          .summary = "show what was found here (processor, memory, GPU, build) and what could be better",
          .group = "This program",
          .flags = {{.name = "json", .help = "as a JSON array of findings"}},
          .examples = {{"doctor", "is this machine set up well?"},
                       {"doctor --json | jq '.[] | select(.hint)'", "only what could be better"}},
          .run = run};
}

}  // namespace millrace::apps
