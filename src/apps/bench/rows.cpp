#include "apps/bench/rows.h"

#include <algorithm>

#include "apps/cli/terminal.h"
#include "base/human.h"
#include "machine/stolen.h"

namespace millrace::apps {
namespace {

std::string why_over(const Floor& floor, double seconds, int64_t weights, const Machine& machine) {
  PassedLimits passed;
  passed.add(floor.memory_seconds, floor.compute_seconds, seconds);
  return over_limit_text(passed, weights, machine);
}

std::string bound_name(const Floor& floor) { return floor.bound() == Bound::memory ? "memory" : "compute"; }

// What stands beside every figure of a row, whichever test it is of.
void put_limit(JsonObject& json, const Floor& floor, double seconds, const std::string& why) {
  json["floor_s"] = floor.seconds;
  json["of_limit"] = floor.seconds / seconds;
  json["over_limit"] = why.empty() ? Json(nullptr) : Json(why);
  json["bound"] = bound_name(floor);
}

void put_machine(JsonObject& json, const Machine& machine, std::optional<double> stolen) {
  auto known = [](double noise) { return noise < 0 ? Json(nullptr) : Json(noise); };
  json["ceiling_read_gb_per_s"] = machine.read_bytes / 1e9;
  json["ceiling_int8_gop_per_s"] = machine.int8_operations / 1e9;
  json["ceiling_bf16_gop_per_s"] = machine.bf16_operations / 1e9;
  json["ceiling_f32_gop_per_s"] = machine.f32_operations / 1e9;
  json["ceiling_f16_gop_per_s"] = machine.f16_operations / 1e9;
  json["ceiling_noise"] = known(machine.noise.largest());
  json["ceiling_read_noise"] = known(machine.noise.read);
  json["ceiling_int8_noise"] = known(machine.noise.int8);
  json["ceiling_bf16_noise"] = known(machine.noise.bf16);
  json["ceiling_f32_noise"] = known(machine.noise.f32);
  json["ceiling_f16_noise"] = known(machine.noise.f16);
  json["ceiling_stolen"] = machine.stolen;
  json["stolen"] = stolen_json(stolen);
}

// The ceilings of each number of threads and instruction set, why rows passed them, and what others took meanwhile.
template <class R>
void print_remarks(const Terminal& terminal, const std::vector<R>& rows) {
  std::vector<std::string> said;
  auto once = [&](std::string text) {
    if (text.empty() || std::find(said.begin(), said.end(), text) != said.end()) return;
    terminal.note("{}", text);
    said.push_back(std::move(text));
  };
  for (const R& row : rows) {
    const Machine& m = row.machine;
    once(fmt::format("ceilings ({}, {}, {} threads): {}", m.processor, m.isa, m.threads, ceilings_text(m)));
  }
  const size_t ceilings = said.size();
  for (const R& row : rows) once(why_over_limit(row));
  const Machine& last = rows.back().machine;
  if (said.size() == ceilings && (last.noise.largest() >= 0.1 || last.stolen >= 0.02)) once(noise_text(last));
  std::optional<double> stolen;
  for (const R& row : rows) stolen = std::max(stolen, row.stolen);
  if (const auto text = stolen_text(stolen)) once(*text);
}

}  // namespace

std::string why_over_limit(const StepRow& row) {
  return why_over(row.result.floor, row.result.median_seconds(), row.bytes, row.machine);
}

std::string why_over_limit(const OpRow& row) {
  return why_over(row.result.floor, row.result.median_seconds(), row.footprint, row.machine);
}

JsonObject row_json(const StepRow& row) {
  const StepResult& r = row.result;
  double seconds = r.median_seconds(), tokens = static_cast<double>(r.test.tokens());
  JsonArray samples;
  for (double s : r.seconds) samples.push_back(s);
  JsonObject json = {{"model", row.model},
                     {"type", row.type},
                     {"kv", row.kv},
                     {"model_bytes", row.bytes},
                     {"model_params", row.parameters},
                     {"backend", row.description},
                     {"isa", row.isa},
                     {"threads", row.threads},
                     {"test", r.test.name()},
                     {"n_prompt", r.test.prompt},
                     {"n_gen", r.test.generated},
                     {"n_depth", r.test.depth},
                     {"sequences", r.test.sequences},
                     {"avg_ts", r.mean_rate()},
                     {"stddev_ts", r.deviation()},
                     {"median_s", seconds},
                     {"samples_s", samples},
                     {"bytes_per_token", r.floor.bytes / tokens},
                     {"flops_per_token", r.floor.flops / tokens},
                     {"gb_per_s", r.floor.bytes / seconds / 1e9},
                     {"gop_per_s", r.floor.flops / seconds / 1e9}};
  put_limit(json, r.floor, seconds, why_over_limit(row));
  put_machine(json, row.machine, row.stolen);
  return json;
}

JsonObject row_json(const OpRow& row) {
  const OpResult& r = row.result;
  double seconds = r.median_seconds();
  JsonObject json = {{"op", r.test.name()},
                     {"type", format(r.test.type).name},
                     {"rows", r.test.rows},
                     {"isa", row.isa},
                     {"threads", row.threads},
                     {"seconds", seconds},
                     {"bytes", r.floor.bytes},
                     {"flops", r.floor.flops},
                     {"gb_per_s", r.floor.bytes / seconds / 1e9},
                     {"gop_per_s", r.floor.flops / seconds / 1e9}};
  put_limit(json, r.floor, seconds, why_over_limit(row));
  put_machine(json, row.machine, row.stolen);
  return json;
}

void print_rows(const Terminal& terminal, const std::vector<StepRow>& rows) {
  Table table({{"model"},
               {"type"},
               {"kv"},
               {"size"},
               {"params"},
               {"threads", Table::Align::right},
               {"test"},
               {"t/s", Table::Align::right},
               {"MB/token", Table::Align::right},
               {"MFLOP/token", Table::Align::right},
               {"GB/s", Table::Align::right},
               {"GOP/s", Table::Align::right},
               {"of limit", Table::Align::right},
               {"bound by"}});
  for (const StepRow& row : rows) {
    const StepResult& r = row.result;
    double tokens = static_cast<double>(r.test.tokens()), seconds = r.median_seconds();
    table.row({row.model, row.type, row.kv, human_bytes(static_cast<uint64_t>(row.bytes)),
               human_count(static_cast<uint64_t>(row.parameters)), fmt::format("{}", row.threads), r.test.name(),
               fmt::format("{:.2f} ± {:.2f}", r.mean_rate(), r.deviation()),
               fmt::format("{:.2f}", r.floor.bytes / tokens / 1e6), fmt::format("{:.1f}", r.floor.flops / tokens / 1e6),
               fmt::format("{:.1f}", r.floor.bytes / seconds / 1e9),
               fmt::format("{:.1f}", r.floor.flops / seconds / 1e9), share_of_limit(r.floor.seconds / seconds),
               bound_name(r.floor)});
  }
  table.print(terminal);
  print_remarks(terminal, rows);
}

void print_rows(const Terminal& terminal, const std::vector<OpRow>& rows) {
  using Align = Table::Align;
  Table table({{"op"},
               {"type"},
               {"rows", Align::right},
               {"isa"},
               {"threads", Align::right},
               {"us", Align::right},
               {"MB", Align::right},
               {"MFLOP", Align::right},
               {"GB/s", Align::right},
               {"GOP/s", Align::right},
               {"of limit", Align::right},
               {"bound by"}});
  for (const OpRow& row : rows) {
    const OpResult& r = row.result;
    double seconds = r.median_seconds();
    bool weights = r.floor.bytes > 0;
    table.row({r.test.name(), std::string(format(r.test.type).name), fmt::format("{}", r.test.rows), row.isa,
               fmt::format("{}", row.threads), fmt::format("{:.1f}", seconds * 1e6),
               fmt::format("{:.2f}", r.floor.bytes / 1e6), fmt::format("{:.2f}", r.floor.flops / 1e6),
               fmt::format("{:.1f}", r.floor.bytes / seconds / 1e9),
               fmt::format("{:.1f}", r.floor.flops / seconds / 1e9), share_of_limit(r.floor.seconds / seconds),
               weights ? bound_name(r.floor) : "compute"});
  }
  table.print(terminal);
  print_remarks(terminal, rows);
}

void print_csv(const Terminal& terminal, const std::vector<StepRow>& rows) {
  bool first = true;
  for (const StepRow& row : rows) {
    JsonObject object = row_json(row);
    object.erase("samples_s");
    std::string titles, cells;
    for (const auto& member : object) {
      if (!titles.empty()) titles += ",", cells += ",";
      titles += std::string_view(member.key());
      cells += to_text(member.value());
    }
    if (first) terminal.print("{}\n", titles);
    terminal.print("{}\n", cells);
    first = false;
  }
}

}  // namespace millrace::apps
