#include "apps/plan/explain_report.h"

#include <algorithm>
#include <optional>

#include "apps/build_info.h"
#include "apps/cli/terminal.h"
#include "apps/plan/expert_load.h"
#include "machine/stolen.h"
#include "report/chart.h"
#include "report/page.h"

namespace millrace::apps {
namespace {

using report::short_bytes;
using report::short_number;
using report::short_seconds;
using Align = Table::Align;

std::string bound_text(const Floor& floor) { return floor.bound() == Bound::memory ? "memory" : "compute"; }
std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

double total_seconds(const std::vector<OpShare>& ops) {
  double sum = 0;
  for (const OpShare& op : ops) sum += op.seconds;
  return sum;
}

Growth growth_of(const std::vector<GrowthPoint>& points) {
  std::vector<std::pair<double, double>> pairs;
  for (const GrowthPoint& point : points) pairs.emplace_back(point.length, point.seconds);
  return fit_growth(pairs);
}

void print_ops(const Terminal& terminal, std::string_view title, const std::vector<OpShare>& ops, int64_t steps) {
  if (ops.empty()) return;
  terminal.print("\n{}\n", terminal.out_paint(Style::bold, title));
  Table table({{"op"},
               {"calls", Align::right},
               {"time", Align::right},
               {"share", Align::right},
               {"bound by"},
               {"limit", Align::right},
               {"barrier", Align::right},
               {"rest", Align::right},
               {"of limit", Align::right}});
  const double all = total_seconds(ops), each = static_cast<double>(std::max<int64_t>(1, steps));
  for (const OpShare& op : ops) {
    table.row({op.name, fmt::format("{:.0f}", static_cast<double>(op.calls) / each), short_seconds(op.seconds / each),
               percent(op.seconds / all), bound_text(op.floor), short_seconds(op.limit() / each),
               short_seconds(op.barrier / each), short_seconds(op.rest() / each), share_of_limit(op.of_limit())});
  }
  table.print(terminal);
}

void print_growth(const Terminal& terminal, std::string_view title, std::string_view what,
                  const std::vector<GrowthPoint>& points) {
  if (points.empty()) return;
  terminal.print("\n{}\n", terminal.out_paint(Style::bold, title));
  Table table(
      {{std::string(what), Align::right}, {"time", Align::right}, {"limit", Align::right}, {"of limit", Align::right}});
  for (const GrowthPoint& point : points) {
    table.row({fmt::format("{}", point.length), short_seconds(point.seconds), short_seconds(point.floor.seconds),
               share_of_limit(point.floor.seconds / point.seconds)});
  }
  table.print(terminal);
}

JsonArray ops_json(const std::vector<OpShare>& ops) {
  JsonArray rows;
  for (const OpShare& op : ops) {
    rows.push_back(JsonObject{{"op", op.name},
                              {"calls", op.calls},
                              {"seconds", op.seconds},
                              {"bound", bound_text(op.floor)},
                              {"limit_seconds", op.limit()},
                              {"memory_seconds", op.floor.memory_seconds},
                              {"compute_seconds", op.floor.compute_seconds},
                              {"barrier_seconds", op.barrier},
                              {"rest_seconds", op.rest()},
                              {"of_limit", op.of_limit()},
                              {"bytes", op.floor.bytes},
                              {"flops", op.floor.flops}});
  }
  return rows;
}

JsonObject growth_json(const std::vector<GrowthPoint>& points) {
  JsonArray rows;
  for (const GrowthPoint& point : points)
    rows.push_back(
        JsonObject{{"tokens", point.length}, {"seconds", point.seconds}, {"limit_seconds", point.floor.seconds}});
  const Growth growth = growth_of(points);
  return {{"points", std::move(rows)},
          {"fixed_seconds", growth.fixed},
          {"seconds_per_token", growth.linear},
          {"seconds_per_token_squared", growth.square}};
}

int64_t decode_steps(const Explanation& what) {
  return std::count_if(what.steps.begin(), what.steps.end(), [](const StepShare& step) { return !step.prefill; });
}

double decode_of_limit(const ExplainReport& r) {
  const double seconds = total_seconds(r.what.decode);
  return seconds > 0 ? r.what.decode_floor.seconds / seconds : 0;
}

// What a step of one token reads at least, weights and cache.
double bytes_of_token(const ExplainReport& r) {
  const auto steps = static_cast<double>(decode_steps(r.what));
  return steps > 0 ? r.what.decode_floor.bytes / steps : 0;
}

// Why something was over its limit; empty if nothing was.
std::string why_over(const ExplainReport& r) { return over_limit_text(passed_limits(r), r.weights, r.machine); }

}  // namespace

PassedLimits passed_limits(const ExplainReport& r) {
  PassedLimits passed;
  auto add = [&](const Floor& floor, double seconds) {
    passed.add(floor.memory_seconds, floor.compute_seconds, seconds);
  };
  add(r.what.decode_floor, total_seconds(r.what.decode));
  for (const auto* ops : {&r.what.prefill, &r.what.decode}) {
    for (const OpShare& op : *ops) add(op.floor, op.seconds);
  }
  for (const auto* points : {&r.prefill, &r.decode}) {
    for (const GrowthPoint& point : *points) add(point.floor, point.seconds);
  }
  return passed;
}

// Where a prompt that comes again finds its beginning, and whether that pays.
static void print_again(const Terminal& terminal, const ExplainReport& r) {
  const AskedAgain& again = r.again;
  terminal.print("asked again: {} of {} prompt tokens found in memory, first token after {}\n", again.found,
                 r.timeline.prompt, short_seconds(again.seconds));
  if (again.from_host > 0)
    terminal.print("from the host's memory: {} in {}, {}\n", short_bytes(static_cast<double>(again.bytes)),
                   short_seconds(again.from_host),
                   again.from_host < r.what.first_token ? "faster than computing them" : "slower than computing them");
}

void print_explanation(const Terminal& terminal, const ExplainReport& r) {
  terminal.print("{} on {}: {} prompt tokens, {} of the answer\n", terminal.out_paint(Style::bold, printable(r.model)),
                 r.backend, r.timeline.prompt, r.timeline.answer);
  terminal.print("{} parameters{}; a token reads {}\n", short_number(static_cast<double>(r.parameters)),
                 r.touched.empty() ? "" : fmt::format(", {} for a token", short_number(static_cast<double>(r.active))),
                 short_bytes(bytes_of_token(r)));
  print_touched(terminal, r.touched);
  terminal.print("first token after {}, then {} a token ({} a second), {} of the limit\n",
                 short_seconds(r.what.first_token), short_seconds(r.what.token),
                 short_number(r.what.token > 0 ? 1 / r.what.token : 0), share_of_limit(decode_of_limit(r)));
  print_again(terminal, r);
  terminal.print("\n");
  Table phases({{"phase"}, {"time", Align::right}, {"share", Align::right}});
  for (const PhaseShare& phase : r.what.phases)
    phases.row({phase.name, short_seconds(phase.seconds), percent(phase.seconds / r.timeline.end)});
  phases.print(terminal);
  print_ops(terminal, "Prefill", r.what.prefill, 1);
  print_ops(terminal, "Decode, a step", r.what.decode, decode_steps(r.what));
  print_experts(terminal, r.what.experts);
  print_growth(terminal, "Prefill by length", "tokens", r.prefill);
  print_growth(terminal, "A token by context", "in the cache", r.decode);
  if (r.prefill.size() >= 3) {
    const Growth growth = growth_of(r.prefill);
    const double p = r.prefill.back().length;
    terminal.print("\nprefill of p tokens takes about {} p + {} p²: at {} tokens the square is {} of it\n",
                   short_seconds(growth.linear), short_seconds(growth.square), r.prefill.back().length,
                   percent(growth.square * p * p / growth.at(p)));
  }
  if (r.handover > 0)
    terminal.note("barrier: {} to hand work to {} workers and wait for them, measured without any work",
                  short_seconds(r.handover), r.machine.threads);
  if (const std::string why = why_over(r); !why.empty()) terminal.note("{}", why);
  if (const auto text = stolen_text(r.stolen)) terminal.note("{}", *text);
}

Json explanation_json(const ExplainReport& r) {
  const std::string why = why_over(r);
  JsonObject phases;
  for (const PhaseShare& phase : r.what.phases) phases[phase.name] = phase.seconds;
  JsonArray layers;
  for (const LayerShare& layer : r.what.layers) {
    layers.push_back(
        JsonObject{{"layer", layer.layer}, {"prefill_seconds", layer.prefill}, {"decode_seconds", layer.decode}});
  }
  return JsonObject{{"model", valid_utf8(r.model)},
                    {"backend", r.backend},
                    {"parameters", r.parameters},
                    {"active_parameters", r.active},
                    {"bytes_per_token", bytes_of_token(r)},
                    {"experts_touched", touched_json(r.touched)},
                    {"prompt_tokens", r.timeline.prompt},
                    {"answer_tokens", r.timeline.answer},
                    {"answer", valid_utf8(r.answer)},
                    {"seconds", r.timeline.end},
                    {"ttft_seconds", r.what.first_token},
                    {"tpot_seconds", r.what.token},
                    {"decode_of_limit", decode_of_limit(r)},
                    {"over_limit", why.empty() ? Json(nullptr) : Json(why)},
                    {"stolen", stolen_json(r.stolen)},
                    {"handover_seconds", r.handover},
                    {"again", JsonObject{{"found_tokens", r.again.found},
                                         {"ttft_seconds", r.again.seconds},
                                         {"bytes", r.again.bytes},
                                         {"from_host_seconds", r.again.from_host}}},
                    {"phases", std::move(phases)},
                    {"prefill", ops_json(r.what.prefill)},
                    {"decode", ops_json(r.what.decode)},
                    {"layers", std::move(layers)},
                    {"experts", experts_json(r.what.experts)},
                    {"prefill_growth", growth_json(r.prefill)},
                    {"decode_growth", growth_json(r.decode)}};
}

std::string explanation_trace(const ExplainReport& r, const CallOps& calls) {
  JsonArray events;
  auto track = [&](int id, std::string_view name) {
    events.push_back(JsonObject{
        {"ph", "M"}, {"pid", 1}, {"tid", id}, {"name", "thread_name"}, {"args", JsonObject{{"name", name}}}});
  };
  auto event = [&](int id, std::string_view name, const Stretch& span, JsonObject args) {
    events.push_back(JsonObject{{"ph", "X"},
                                {"pid", 1},
                                {"tid", id},
                                {"name", name},
                                {"ts", span.begin * 1e6},
                                {"dur", span.seconds * 1e6},
                                {"args", std::move(args)}});
  };
  track(1, "request"), track(2, "steps"), track(3, "ops");
  event(1, "template and tokenise", r.timeline.tokenise, {});
  for (const Stretch& span : r.timeline.chosen) event(1, "detokenise", span, {});
  for (const StepShare& step : r.what.steps)
    event(2, step.prefill ? "prefill" : "decode", step.span, {{"rows", step.rows}});
  for (size_t i = 0; i < calls.calls().size(); ++i) {
    const OpCall& call = calls.calls()[i];
    const Cost cost = calls.cost(call);
    event(3, r.what.names[i].name, {call.begin, call.seconds},
          {{"layer", r.what.names[i].layer},
           {"rows", call.rows},
           {"weight_bytes", cost.weight_bytes},
           {"kv_bytes", cost.kv_bytes},
           {"flops", cost.flops}});
  }
  return to_text(JsonObject{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}) + "\n";
}

namespace {

std::string ops_chart(const std::vector<OpShare>& ops, int64_t steps) {
  using namespace report;
  BarChart chart = {.legend = {{"memory limit", 0}, {"compute limit", 1}, {"barrier", 6}, {"rest", 7}},
                    .bars = {},
                    .unit = Unit::seconds};
  const double each = static_cast<double>(std::max<int64_t>(1, steps));
  for (const OpShare& op : ops) {
    if (chart.bars.size() == 10) break;
    const bool memory = op.floor.bound() == Bound::memory;
    const double limit = std::min(op.limit(), op.seconds);
    chart.bars.push_back(
        {.label = op.name,
         .note = fmt::format("{}, {} of its limit", short_seconds(op.seconds / each), share_of_limit(op.of_limit())),
         .parts = {{limit / each, memory ? 0 : 1,
                    fmt::format("{} limit {}", memory ? "memory" : "compute", short_seconds(limit / each))},
                   {op.barrier / each, 6, fmt::format("barrier {}", short_seconds(op.barrier / each))},
                   {op.rest() / each, 7, fmt::format("rest {}", short_seconds(op.rest() / each))}}});
  }
  return draw(chart);
}

std::string phases_chart(const ExplainReport& r) {
  using namespace report;
  BarChart chart = {.legend = {}, .bars = {}, .unit = Unit::seconds};
  int colour = 0;
  for (const PhaseShare& phase : r.what.phases) {
    chart.bars.push_back(
        {.label = phase.name,
         .note = fmt::format("{}, {}", short_seconds(phase.seconds), percent(phase.seconds / r.timeline.end)),
         .parts = {{phase.seconds, phase.name == "prefill"  ? 2
                                   : phase.name == "decode" ? 3
                                                            : 7}}});
    ++colour;
  }
  return draw(chart);
}

std::string layers_chart(const ExplainReport& r) {
  using namespace report;
  LineChart chart = {.x = {.title = "layer"},
                     .y = {.title = "share of its pass", .unit = Unit::percent},
                     .series = {},
                     .width = 920,
                     .height = 260};
  Series prefill = {.name = "prefill", .colour = 2}, decode = {.name = "decode", .colour = 3};
  const double all_prefill = total_seconds(r.what.prefill), all_decode = total_seconds(r.what.decode);
  for (const LayerShare& layer : r.what.layers) {
    if (layer.layer < 0) continue;
    if (all_prefill > 0) prefill.points.push_back({static_cast<double>(layer.layer), layer.prefill / all_prefill});
    if (all_decode > 0) decode.points.push_back({static_cast<double>(layer.layer), layer.decode / all_decode});
  }
  chart.series = {prefill, decode};
  return draw(chart);
}

std::string growth_chart(const std::vector<GrowthPoint>& points, std::string_view title) {
  using namespace report;
  LineChart chart = {.x = {.title = std::string(title)},
                     .y = {.title = "time", .unit = Unit::seconds},
                     .series = {},
                     .width = 450,
                     .height = 300};
  Series measured = {.name = "measured", .colour = 0},
         limit = {.name = "limit", .colour = 1, .dots = false, .dashed = true};
  for (const GrowthPoint& point : points) {
    measured.points.push_back({static_cast<double>(point.length), point.seconds});
    limit.points.push_back({static_cast<double>(point.length), point.floor.seconds});
  }
  chart.series = {measured, limit};
  return draw(chart);
}

}  // namespace

std::string explanation_page(const ExplainReport& r) {
  using namespace report;
  Page page(
      fmt::format("Where the time went: {}", r.model),
      fmt::format("One request on {}: {} prompt tokens, {} of the answer. Limits are this machine's measured ceilings: "
                  "{}.",
                  r.backend, r.timeline.prompt, r.timeline.answer, ceilings_text(r.machine)));
  page.figures(
      {{short_seconds(r.what.first_token), "to the first token", fmt::format("a prompt of {}", r.timeline.prompt)},
       {short_seconds(r.what.token), "for every next token", "mean"},
       {short_number(r.what.token > 0 ? 1 / r.what.token : 0), "tokens a second", "while decoding"},
       {share_of_limit(decode_of_limit(r)), "of the limit", "ops of a decode step"}});
  if (const std::string why = why_over(r); !why.empty()) page.note(why);
  if (const auto text = stolen_text(r.stolen)) page.note(*text);
  page.section("The request", "From the text going in to the last word coming out.");
  page.chart(phases_chart(r), "Nothing waited in a queue: the machine had one request.");
  if (!r.what.decode.empty()) {
    page.section("A decode step",
                 "Each op: the least this machine could take for it, handing work to the workers, and the rest.");
    page.chart(ops_chart(r.what.decode, decode_steps(r.what)), "Mean of all decode steps, longest first.");
  }
  page.section("Prefill");
  page.chart(ops_chart(r.what.prefill, 1), "The whole prompt.");
  page.section("Layers");
  page.chart(layers_chart(r), "Equal layers should take equal time; what bends the line is worth a look.");
  if (!r.what.experts.empty()) {
    page.section("Experts", "How many of a layer's tokens each expert had, prompt and answer together.");
    page.chart(experts_chart(r.what.experts), "The first layer that has experts, the one in the middle and the last.");
  }
  if (!r.prefill.empty()) {
    page.section(
        "How it grows",
        "Products grow with the prompt, attention with its square; a decode step grows with what is in the cache.");
    page.charts({{growth_chart(r.prefill, "prompt tokens"), "Prefill, measured here, above its limit."},
                 {growth_chart(r.decode, "tokens in the cache"), "One token, measured here, above its limit."}});
  }
  return page.html(fmt::format("millrace {} explain", kBuildInfo.version));
}

}  // namespace millrace::apps
