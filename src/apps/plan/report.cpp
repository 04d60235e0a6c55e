#include "apps/plan/report.h"

#include "apps/cli/terminal.h"
#include "base/file.h"
#include "base/human.h"
#include "report/page.h"

namespace millrace::apps {
namespace {

using report::short_bytes;
using report::short_number;
using report::short_seconds;
using Align = Table::Align;

std::string bytes_text(int64_t bytes) { return short_bytes(static_cast<double>(bytes)); }
std::string bound_text(Bound bound) { return bound == Bound::memory ? "memory" : "compute"; }
std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

void heading(const Terminal& terminal, std::string_view text) {
  terminal.print("\n{}\n", terminal.out_paint(Style::bold, text));
}

void line(const Terminal& terminal, std::string_view what, std::string_view value, std::string_view remark = "") {
  terminal.print("  {:<18} {:>10}{}{}\n", what, value, remark.empty() ? "" : "   ", remark);
}

void print_memory(const Terminal& terminal, const PlanReport& r) {
  const MemoryPlan& m = r.memory;
  heading(terminal, r.ranks > 1 ? "Memory of each device" : "Memory");
  line(terminal, "weights", bytes_text(m.weights), r.weights);
  line(terminal, "keys and values", bytes_text(m.kv),
       fmt::format("{} of {}, {} of {} tokens", short_bytes(static_cast<double>(m.kv) / r.batch / r.context),
                   r.kv.name(), counted(r.batch, "sequence"), r.context));
  line(terminal, "workspace", bytes_text(m.workspace + m.staging));
  if (m.reserve > 0) line(terminal, "reserve", bytes_text(m.reserve), "driver, libraries, system");
  line(terminal, "total", bytes_text(m.total()),
       fmt::format("{} of {}", percent(static_cast<double>(m.total()) / static_cast<double>(m.limit)),
                   bytes_text(m.limit)));
  if (!m.fits()) {
    terminal.print("  {}\n", terminal.out_paint(Style::red,
                                                "does not fit: fewer bits (--weights, --kv), a smaller "
                                                "batch, a shorter context, or more devices (--tp)"));
  }
  if (r.fitting_sequences > 0) {
    line(terminal, "room for", fmt::format("{}", r.fitting_sequences),
         fmt::format("sequences of {} tokens", r.context));
  }
  if (r.fitting_context > 0) {
    line(terminal, "or", fmt::format("{}", r.batch),
         fmt::format("of up to {} tokens{}", r.fitting_context,
                     r.fitting_context == r.model_context ? " (all the model was made for)" : ""));
  }
  if (!r.fitting.empty()) line(terminal, "by length", "", fitting_text(r));
  line(terminal, "scores, stored", short_bytes(r.scores.stored),
       fmt::format("a layer, if attention kept them; {} with a running maximum", short_bytes(r.scores.running)));
}

void print_time(const Terminal& terminal, const PlanReport& r) {
  heading(terminal, "Time, at the least");
  Table table({{"pass"},
               {"operations", Align::right},
               {"bytes", Align::right},
               {"op/byte", Align::right},
               {"bound by"},
               {"reduce", Align::right},
               {"time", Align::right}});
  auto row = [&](std::string name, const PassPlan& pass) {
    table.row({std::move(name), short_number(pass.floor.flops), short_bytes(pass.floor.bytes),
               short_number(pass.floor.intensity()), bound_text(pass.floor.bound()),
               r.ranks > 1 ? short_bytes(pass.reduce_bytes) : "-", short_seconds(pass.seconds())});
  };
  row(fmt::format("prefill of {}", r.prompt), r.prefill);
  row(fmt::format("decode of {} at {}", r.batch, r.prompt + std::max(1, r.output / 2)), r.decode);
  table.print(terminal);
  terminal.print("\n");
  line(terminal, "first token", short_seconds(r.load.first_token), "TTFT, the prompt alone on the machine");
  line(terminal, "next tokens", short_seconds(r.load.token), "TPOT");
  line(terminal, "tokens a second", short_number(r.load.decode_rate * r.replicas),
       fmt::format("while decoding; {} with the prompts computed in between{}",
                   short_number(r.load.served_rate * r.replicas),
                   r.replicas > 1 ? fmt::format(", {} copies together", r.replicas) : ""));
  line(terminal, "compute-bound from", r.compute_bound_batch > 0 ? fmt::format("{}", r.compute_bound_batch) : "never",
       "sequences on, in the products of a decode step");
  if (r.price > 0) {
    line(terminal, "a million tokens", fmt::format("{:.3g}", r.cost(r.load.served_rate)),
         fmt::format("at {} a device and hour, {} devices in all", r.price, r.devices()));
  }
}

void print_ops(const Terminal& terminal, const PlanReport& r) {
  heading(terminal, "Where the time goes");
  Table table({{"op"},
               {"prefill", Align::right},
               {"share", Align::right},
               {"op/byte", Align::right},
               {"bound"},
               {"decode", Align::right},
               {"share", Align::right},
               {"op/byte", Align::right},
               {"bound"}});
  for (const OpPlan& op : r.decode_ops) {
    OpPlan other;
    for (const OpPlan& each : r.prefill_ops) {
      if (each.op == op.op) other = each;
    }
    auto cells = [](const OpPlan& one, const PassPlan& all) {
      return std::vector<std::string>{short_seconds(one.floor.seconds), percent(one.floor.seconds / all.floor.seconds),
                                      one.floor.bytes > 0 ? short_number(one.floor.intensity()) : "-",
                                      bound_text(one.floor.bound())};
    };
    std::vector<std::string> row = {op.op};
    for (auto& cell : cells(other, r.prefill)) row.push_back(std::move(cell));
    for (auto& cell : cells(op, r.decode)) row.push_back(std::move(cell));
    table.row(std::move(row));
  }
  table.print(terminal);
}

void print_touched(const Terminal& terminal, const PlanReport& r) {
  if (r.touched.empty()) return;
  heading(terminal, "Experts that a decode step reads, if tokens choose evenly");
  Table table({{"batch", Align::right}, {"of a layer", Align::right}, {"bytes a token", Align::right}});
  for (const PlanReport::Touched& each : r.touched) {
    table.row({fmt::format("{}", each.batch), fmt::format("{} of {}", each.experts, each.of), short_bytes(each.bytes)});
  }
  table.print(terminal);
}

void print_frontier(const Terminal& terminal, const PlanReport& r) {
  heading(terminal, "Sequences at once");
  std::vector<Table::Column> columns = {{"batch", Align::right},      {"a token", Align::right},
                                        {"decode t/s", Align::right}, {"served t/s", Align::right},
                                        {"memory", Align::right},     {"bound by"}};
  if (r.price > 0) columns.push_back({"a million tokens", Align::right});
  Table table(columns);
  for (const LoadPlan& p : r.frontier) {
    std::vector<std::string> row = {fmt::format("{}", p.batch),   short_seconds(p.token),
                                    short_number(p.decode_rate),  short_number(p.served_rate),
                                    bytes_text(p.memory.total()), bound_text(p.bound)};
    if (r.price > 0) row.push_back(fmt::format("{:.3g}", r.cost(p.served_rate)));
    table.row(std::move(row));
  }
  table.print(terminal);
}

void print_rest(const Terminal& terminal, const PlanReport& r) {
  if (!r.attention.empty()) {
    heading(terminal, "Keys and values under other attention");
    for (const PlanReport::Attention& each : r.attention)
      line(terminal, "", bytes_text(each.bytes), each.name + (each.own ? " (this model)" : ""));
  }
  if (r.waste) {
    heading(terminal, "Lengths given");
    line(terminal, "pages waste", percent(r.waste->paged_waste()),
         fmt::format("{} tokens in pages for {}; reserving the context wastes {}", r.waste->used, r.waste->paged,
                     percent(r.waste->reserved_waste())));
    line(terminal, "batches in use", percent(r.use->continuous_use),
         fmt::format("continuous, {} steps; static {}, {} steps ({} at once)", r.use->continuous_steps,
                     percent(r.use->static_use), r.use->static_steps, r.batch));
  }
  if (r.drafts) {
    const PlannedDrafts &asked = *r.drafts, &best = *r.best_drafts;
    heading(terminal, "Speculation");
    line(terminal, "tokens a pass", fmt::format("{:.2f}", asked.speculation.tokens_per_pass),
         fmt::format("{:.1f} passes for {} tokens, each {:.2f} times as long; {:.2f} times as fast",
                     asked.speculation.passes, r.output, asked.check_cost, asked.speculation.speedup));
    line(terminal, "best number of guesses", fmt::format("{}", best.drafted),
         fmt::format("{:.2f} times as fast", best.speculation.speedup));
  }
}

JsonObject drafts_json(const PlannedDrafts& asked, const PlannedDrafts& best) {
  return {{"tokens_per_pass", asked.speculation.tokens_per_pass},
          {"passes", asked.speculation.passes},
          {"check_cost", asked.check_cost},
          {"speedup", asked.speculation.speedup},
          {"best", JsonObject{{"draft", best.drafted}, {"speedup", best.speculation.speedup}}}};
}

JsonObject memory_json(const MemoryPlan& m) {
  return {{"weights", m.weights}, {"kv", m.kv},         {"workspace", m.workspace}, {"staging", m.staging},
          {"reserve", m.reserve}, {"total", m.total()}, {"limit", m.limit},         {"fits", m.fits()}};
}

JsonObject pass_json(const PassPlan& pass, const std::vector<OpPlan>& ops) {
  JsonArray rows;
  for (const OpPlan& op : ops) {
    rows.push_back(JsonObject{{"op", op.op},
                              {"calls", op.cost.calls},
                              {"flops", op.cost.flops},
                              {"weight_bytes", op.cost.weight_bytes},
                              {"kv_bytes", op.cost.kv_bytes},
                              {"activation_bytes", op.cost.activation_bytes},
                              {"seconds", op.floor.seconds},
                              {"bound", bound_text(op.floor.bound())}});
  }
  return {{"flops", pass.floor.flops},           {"bytes", pass.floor.bytes},
          {"intensity", pass.floor.intensity()}, {"bound", bound_text(pass.floor.bound())},
          {"reduce_bytes", pass.reduce_bytes},   {"reduce_seconds", pass.reduce_seconds},
          {"seconds", pass.seconds()},           {"ops", std::move(rows)}};
}

JsonObject load_json(const PlanReport& r, const LoadPlan& p) {
  JsonObject out = {{"batch", p.batch},
                    {"ttft_seconds", p.first_token},
                    {"tpot_seconds", p.token},
                    {"decode_tokens_per_second", p.decode_rate},
                    {"served_tokens_per_second", p.served_rate},
                    {"bound", bound_text(p.bound)},
                    {"memory_bytes", p.memory.total()}};
  if (r.price > 0) out["cost_per_million_tokens"] = r.cost(p.served_rate);
  return out;
}

}  // namespace

std::string arithmetic_text(const Ceilings& c) {
  const bool bf16 = c.bf16 > c.f32;  // whoever has none multiplies in float32, and both figures are that one
  return fmt::format("{} op/s in {}", short_number(bf16 ? c.bf16 : c.f32), bf16 ? "bf16" : "float32");
}

std::string fitting_text(const PlanReport& r) {
  std::vector<std::string> parts;
  for (const auto& [length, sequences] : r.fitting) parts.push_back(fmt::format("{} of {}", sequences, length));
  return fmt::format("{}", fmt::join(parts, ", "));
}

void print_plan(const Terminal& terminal, const PlanReport& r) {
  terminal.print("{}  {} parameters{}, weights {}, keys and values {}\n",
                 terminal.out_paint(Style::bold, printable(r.model)), short_number(static_cast<double>(r.parameters)),
                 r.touched.empty() ? "" : fmt::format(", {} for a token", short_number(static_cast<double>(r.active))),
                 r.weights, r.kv.name());
  const Ceilings& c = r.hardware.ceilings;
  terminal.print("on {}{} ({}; {}: {}/s, {})\n", r.devices() > 1 ? fmt::format("{} x ", r.devices()) : "",
                 printable(r.hardware.name), printable(r.hardware.description), printable(r.hardware.source),
                 short_bytes(c.read_bytes), arithmetic_text(c));
  if (r.devices() > 1) terminal.print("{} copies, each cut over {} devices\n", r.replicas, r.ranks);
  print_memory(terminal, r);
  print_time(terminal, r);
  print_ops(terminal, r);
  print_touched(terminal, r);
  if (!r.frontier.empty()) print_frontier(terminal, r);
  print_ranks(terminal, r.split, r.batch, r.prompt);
  print_rest(terminal, r);
}

Json plan_json(const PlanReport& r) {
  const Ceilings& c = r.hardware.ceilings;
  JsonArray frontier, attention, fitting, touched;
  for (const PlanReport::Touched& each : r.touched) {
    touched.push_back(
        JsonObject{{"batch", each.batch}, {"experts", each.experts}, {"of", each.of}, {"bytes_per_token", each.bytes}});
  }
  for (const auto& [length, sequences] : r.fitting)
    fitting.push_back(JsonObject{{"context", length}, {"sequences", sequences}});
  for (const LoadPlan& p : r.frontier) frontier.push_back(load_json(r, p));
  for (const PlanReport::Attention& each : r.attention)
    attention.push_back(JsonObject{{"name", each.name}, {"kv_bytes", each.bytes}, {"own", each.own}});
  JsonObject out = {{"model", valid_utf8(r.model)},
                    {"parameters", r.parameters},
                    {"active_parameters", r.active},
                    {"experts_touched", std::move(touched)},
                    {"weights", r.weights},
                    {"kv", r.kv.name()},
                    {"hardware", JsonObject{{"name", valid_utf8(r.hardware.name)},
                                            {"description", valid_utf8(r.hardware.description)},
                                            {"source", valid_utf8(r.hardware.source)},
                                            {"memory_bytes", r.hardware.memory},
                                            {"read_bytes_per_second", c.read_bytes},
                                            {"bf16_operations_per_second", c.bf16},
                                            {"quantised_operations_per_second", c.grouped},
                                            {"f32_operations_per_second", c.f32}}},
                    {"tensor_parallel", r.ranks},
                    {"replicas", r.replicas},
                    {"batch", r.batch},
                    {"prompt", r.prompt},
                    {"output", r.output},
                    {"context", r.context},
                    {"memory", memory_json(r.memory)},
                    {"sequences_that_fit", r.fitting_sequences},
                    {"context_that_fits", r.fitting_context},
                    {"sequences_by_context", std::move(fitting)},
                    {"prefill", pass_json(r.prefill, r.prefill_ops)},
                    {"decode", pass_json(r.decode, r.decode_ops)},
                    {"load", load_json(r, r.load)},
                    {"compute_bound_batch", r.compute_bound_batch},
                    {"frontier", std::move(frontier)},
                    {"attention", std::move(attention)},
                    {"score_bytes", JsonObject{{"stored", r.scores.stored}, {"running", r.scores.running}}}};
  if (r.waste) {
    out["pages"] = JsonObject{{"used_tokens", r.waste->used},
                              {"paged_waste", r.waste->paged_waste()},
                              {"reserved_waste", r.waste->reserved_waste()}};
    out["batching"] = JsonObject{{"static_use", r.use->static_use},
                                 {"continuous_use", r.use->continuous_use},
                                 {"static_steps", r.use->static_steps},
                                 {"continuous_steps", r.use->continuous_steps}};
  }
  if (!r.split.empty()) out["ranks"] = ranks_json(r.split, r.batch);
  if (r.drafts) out["speculation"] = drafts_json(*r.drafts, *r.best_drafts);
  return out;
}

Result<void> write_report(const Terminal& terminal, const std::string& path, std::string_view content) {
  TRY(AtomicFile file, AtomicFile::create(path));
  TRY_VOID(file.write(content));
  TRY_VOID(file.commit());
  terminal.note("wrote {}", printable(path));
  return {};
}

}  // namespace millrace::apps
