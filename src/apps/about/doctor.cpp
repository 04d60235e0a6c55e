#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "apps/about/finding.h"
#include "apps/build_info.h"
#include "apps/cli/host.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda.h"
#include "base/json.h"
#include "base/team.h"
#include "base/topology.h"
#include "machine/ceilings.h"

namespace millrace::apps {
namespace {

bool has(const Host& host, std::string_view feature) {
  const auto& all = host.cpu_features;
  return std::find(all.begin(), all.end(), feature) != all.end();
}

// Integer matrix products are what quantised models are made of.
std::string cpu_hint(const Host& host) {
  if (has(host, "i8mm") || has(host, "avx512_vnni") || has(host, "avx_vnni") || has(host, "amx_int8")) return "";
  if (has(host, "asimddp")) return "no i8mm: prompts are read at about half the speed of newer Arm processors";
  if (has(host, "avx2")) return "no VNNI: quantised models run, but below what newer x86 processors reach";
  return "no AVX2 and no dot-product instructions: only the plain kernels run here, expect low speed";
}

std::string isa_hint(std::string_view chosen) {
  if (chosen == "amx_bf16") return "by MILLRACE_ISA: prompts and 16 sequences are faster than with amx, one is slower";
  return "MILLRACE_ISA holds it back from the best this processor can run";
}

std::string threads_found() {
  const std::vector<Processor>& all = usable_processors();
  const int cores = count_cores(all);
  if (cores == static_cast<int>(all.size())) return fmt::format("{}, one for every processor", cores);
  return fmt::format("{}, one for every core; second threads of cores are used by more than {}", cores, cores);
}

std::string nodes_found() {
  std::string text;
  const std::vector<WorkerPlace> places = places_of(Team::usual(), usable_processors());
  for (size_t i = 0; i < places.size();) {
    size_t end = i;
    while (end < places.size() && places[end].node == places[i].node) ++end;
    text += fmt::format("{}node {}: {} on processors {}", i == 0 ? "" : "; ", places[i].node,
                        counted(static_cast<int64_t>(end - i), "worker"), fmt::join(places[i].processors, ","));
    i = end;
  }
  return text + "; weights lie on the node whose workers read them";
}

void examine_cpu(const Host& host, std::vector<Finding>& report) {
  int usable = Team::processors();
  report.push_back({"cpu", "model", processor_name()});
  report.push_back({"cpu", "features", fmt::format("{}", fmt::join(host.cpu_features, " ")), cpu_hint(host)});
  auto isas = cpu_isas();
  std::string_view chosen = isas.back();
  if (const char* wanted = std::getenv("MILLRACE_ISA"); wanted != nullptr && *wanted != '\0') chosen = wanted;
  report.push_back({"cpu", "kernels", fmt::format("{} (can run {})", chosen, fmt::join(isas, ", ")),
                    chosen == isas.back() ? "" : isa_hint(chosen)});
  Finding count = {"cpu", "processors", fmt::format("{} usable of {}", usable, host.processors)};
  if (host.cores) {
    count.found += *host.cores < host.processors ? fmt::format(", threads of {}", counted(*host.cores, "core"))
                                                 : std::string(", each a core");
  }
  if (host.cpu_quota && *host.cpu_quota + 0.01 < usable) {
    count.found += fmt::format(", time for {:.1f}", *host.cpu_quota);
    count.hint = fmt::format("the control group allows {:.1f} processors of time: run with that many threads",
                             std::max(1.0, std::floor(*host.cpu_quota)));
  }
  report.push_back(count);
  report.push_back({"cpu", "threads by default", threads_found()});
  if (count_nodes(usable_processors()) > 1) report.push_back({"cpu", "memory nodes", nodes_found()});
  if (!host.governor.empty()) {
    bool slow = host.governor == "powersave" || host.governor == "conservative";
    report.push_back({"cpu", "frequency governor", host.governor,
                      slow ? "`cpupower frequency-set -g performance` gives steadier speed" : ""});
  }
}

void examine_memory(const Host& host, std::vector<Finding>& report) {
  Finding memory = {"memory", "total", human_bytes(host.memory)};
  if (host.memory_limit) {
    memory.found += fmt::format(", of which this control group may use {}", human_bytes(*host.memory_limit));
    memory.hint = "the limit counts, not the machine's memory: a model must fit in it with its cache";
  }
  report.push_back(memory);
  bool tight = host.memory_available * 10 < host.memory;
  report.push_back({"memory", "available", human_bytes(host.memory_available),
                    tight ? "less than a tenth is free: weights would be read from disk again and again" : ""});
  report.push_back({"memory", "swap", host.swap == 0 ? "none" : human_bytes(host.swap)});
  report.push_back({"memory", "page size", human_bytes(host.page)});
  bool never = host.transparent_huge_pages == "never";
  report.push_back({"memory", "huge pages on demand", host.transparent_huge_pages,
                    never ? "`echo madvise > /sys/kernel/mm/transparent_hugepage/enabled` (as root) saves address "
                            "translation, some percent of speed on large models"
                          : ""});
  std::vector<std::string> sizes;
  for (uint64_t size : host.huge_page_sizes) sizes.push_back(human_bytes(size));
  report.push_back({"memory", "huge page sizes", sizes.empty() ? "none" : fmt::format("{}", fmt::join(sizes, ", "))});
  report.push_back({"memory", "may be locked", host.locked_limit ? human_bytes(*host.locked_limit) : "all of it"});
}

void examine_gpus(const Host& host, std::vector<Finding>& report) {
  for (Finding& finding : gpu_findings(host, cuda_built(), cuda_devices())) report.push_back(std::move(finding));
  if (!host.gpu_driver.empty()) report.push_back({"gpu", "driver", host.gpu_driver});
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

Result<int> run_doctor(const Arguments& arguments) {
  Host host = probe_host();
  std::vector<Finding> report;
  examine_cpu(host, report);
  examine_memory(host, report);
  examine_gpus(host, report);
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
          .run = run_doctor};
}

}  // namespace millrace::apps
