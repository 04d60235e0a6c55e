#include <algorithm>
#include <cmath>

#include "apps/build_info.h"
#include "apps/plan/report.h"
#include "report/chart.h"
#include "report/page.h"

namespace millrace::apps {
namespace {

using namespace report;

std::string bytes_text(int64_t bytes) { return short_bytes(static_cast<double>(bytes)); }
std::string bound_text(Bound bound) { return bound == Bound::memory ? "memory" : "compute"; }

double ridge_of(const PlanReport& r) { return r.product_rate / r.hardware.ceilings.read_bytes; }

std::string roofline_chart(const PlanReport& r) {
  const Ceilings& c = r.hardware.ceilings;
  const double peak = r.product_rate, ridge = ridge_of(r);
  const double low = 0.25, high = std::max(ridge * 16, 2 * r.prefill.floor.intensity());
  LineChart chart = {.x = {.title = "operations a byte", .logarithmic = true},
                     .y = {.title = "operations a second", .logarithmic = true}};
  chart.series.push_back(
      {.name = "memory", .points = {{low, low * c.read_bytes}, {ridge, peak}}, .colour = 0, .dots = false});
  chart.series.push_back({.name = "arithmetic", .points = {{ridge, peak}, {high, peak}}, .colour = 1, .dots = false});
  auto add = [&](std::string name, const std::vector<OpPlan>& ops, int colour) {
    Series series = {.name = std::move(name), .colour = colour, .line = false};
    for (const OpPlan& op : ops) {
      if (op.floor.bytes <= 0 || op.floor.seconds <= 0 || op.floor.flops <= 0 || op.floor.intensity() < low) continue;
      if (!op.op.starts_with("linear") && op.op != "attend") continue;
      series.points.push_back({op.floor.intensity(), op.floor.flops / op.floor.seconds,
                               op.op == "linear" ? "products" : "attention",
                               fmt::format("{}: {} operations, {}, {}", op.op, short_number(op.floor.flops),
                                           short_bytes(op.floor.bytes), short_seconds(op.floor.seconds))});
    }
    chart.series.push_back(std::move(series));
  };
  add("prefill", r.prefill_ops, 2);
  add("decode", r.decode_ops, 3);
  return draw(chart);
}

std::string frontier_chart(const PlanReport& r) {
  LineChart chart = {.x = {.title = "time a token", .unit = Unit::seconds},
                     .y = {.title = "tokens a second"},
                     .width = 450,
                     .height = 320};
  Series decode = {.name = "decode", .colour = 0}, served = {.name = "with prompts", .colour = 1};
  for (const LoadPlan& p : r.frontier) {
    const std::string words = fmt::format("batch {}: {} a token, {} tokens/s, {}", p.batch, short_seconds(p.token),
                                          short_number(p.decode_rate), bytes_text(p.memory.total()));
    const bool last = &p == &r.frontier.back() || &p == &r.frontier.front();
    decode.points.push_back({p.token, p.decode_rate, last ? fmt::format("{}", p.batch) : "", words});
    served.points.push_back({p.token, p.served_rate, "", words});
  }
  chart.series = {decode, served};
  return draw(chart);
}

std::string memory_chart(const PlanReport& r) {
  BarChart chart = {.legend = {{"weights", 0}, {"keys and values", 1}, {"workspace", 2}, {"reserve", 7}},
                    .bars = {},
                    .unit = Unit::bytes,
                    .limit = static_cast<double>(r.memory.limit),
                    .limit_label = fmt::format("{} available", bytes_text(r.memory.limit))};
  auto bar = [&](const MemoryPlan& m, int32_t batch) {
    auto part = [](std::string_view name, int64_t bytes, int colour) {
      return BarPart{static_cast<double>(bytes), colour, fmt::format("{}: {}", name, bytes_text(bytes))};
    };
    chart.bars.push_back({.label = fmt::format("batch {}", batch),
                          .note = bytes_text(m.total()),
                          .parts = {part("weights", m.weights, 0), part("keys and values", m.kv, 1),
                                    part("workspace", m.workspace + m.staging, 2), part("reserve", m.reserve, 7)}});
  };
  bool shown = false;
  for (const LoadPlan& p : r.frontier) {
    shown |= p.batch == r.batch;
    bar(p.memory, p.batch);
  }
  if (!shown) bar(r.memory, r.batch);
  return draw(chart);
}

std::string attention_chart(const PlanReport& r) {
  BarChart chart = {.legend = {}, .bars = {}, .unit = Unit::bytes, .width = 450};
  for (const PlanReport::Attention& each : r.attention) {
    chart.bars.push_back({.label = each.name,
                          .note = bytes_text(each.bytes),
                          .parts = {{static_cast<double>(each.bytes), each.own ? 0 : 7}}});
  }
  return draw(chart);
}

void add_ops(Page& page, const PlanReport& r) {
  page.section("Where the time goes",
               "Every operation takes at least the longer of moving its weights and cache and doing its arithmetic.");
  std::vector<TableRow> rows;
  for (const OpPlan& op : r.decode_ops) {
    OpPlan other;
    for (const OpPlan& each : r.prefill_ops) {
      if (each.op == op.op) other = each;
    }
    auto cells = [](const OpPlan& one, double all) {
      return std::vector<std::string>{
          short_seconds(one.floor.seconds), fmt::format("{:.1f} %", 100 * one.floor.seconds / all),
          one.floor.bytes > 0 ? short_number(one.floor.intensity()) : "–", bound_text(one.floor.bound())};
    };
    TableRow row = {.cells = {op.op}};
    for (auto& cell : cells(other, r.prefill.floor.seconds)) row.cells.push_back(std::move(cell));
    for (auto& cell : cells(op, r.decode.floor.seconds)) row.cells.push_back(std::move(cell));
    rows.push_back(std::move(row));
  }
  page.table({{"operation", false},
              {"prefill"},
              {"share"},
              {"op/byte"},
              {"bound", false},
              {"decode"},
              {"share"},
              {"op/byte"},
              {"bound", false}},
             rows);
}

void add_frontier(Page& page, const PlanReport& r) {
  std::vector<TableRow> rows;
  std::vector<Column> columns = {{"batch"},  {"time a token"},   {"decode tokens/s"}, {"with prompts, tokens/s"},
                                 {"memory"}, {"bound by", false}};
  if (r.price > 0) columns.push_back({"a million tokens"});
  for (const LoadPlan& p : r.frontier) {
    TableRow row = {.cells = {fmt::format("{}", p.batch), short_seconds(p.token), short_number(p.decode_rate),
                              short_number(p.served_rate), bytes_text(p.memory.total()), bound_text(p.bound)},
                    .strong = p.batch == r.batch};
    if (r.price > 0) row.cells.push_back(fmt::format("{:.3g}", r.cost(p.served_rate)));
    rows.push_back(std::move(row));
  }
  page.table(columns, rows);
}

std::string room_text(const PlanReport& r) {
  if (r.fitting_sequences == 0) {
    return fmt::format("Not one sequence of {} tokens fits: use fewer bits, a shorter context or more devices.",
                       r.context);
  }
  std::string text = fmt::format("There is room for {} sequences of {} tokens", r.fitting_sequences, r.context);
  if (r.fitting_context > 0) text += fmt::format(", or {} of up to {}", r.batch, r.fitting_context);
  return text + (r.fitting.empty() ? "." : fmt::format("; by length: {}.", fitting_text(r)));
}

}  // namespace

std::string plan_page(const PlanReport& r) {
  const std::string device =
      fmt::format("{}{}", r.devices() > 1 ? fmt::format("{} × ", r.devices()) : "", r.hardware.description);
  Page page(
      fmt::format("{} on {}", r.model, r.hardware.name),
      fmt::format("{} parameters in {}, keys and values in {}, on {} ({}). {} sequences, prompts of {} and answers of "
                  "{} tokens. Times are the least this hardware could take.",
                  short_number(static_cast<double>(r.parameters)), r.weights, r.kv.name(), device, r.hardware.source,
                  r.batch, r.prompt, r.output));
  std::vector<Figure> figures = {
      {short_seconds(r.load.first_token), "to the first token", fmt::format("a prompt of {}", r.prompt)},
      {short_seconds(r.load.token), "for every next token",
       fmt::format("{} sequences, bound by {}", r.batch, bound_text(r.load.bound))},
      {short_number(r.load.decode_rate * r.replicas), "tokens a second",
       fmt::format("{} with prompts", short_number(r.load.served_rate * r.replicas))},
      {bytes_text(r.memory.total()), "on each device", fmt::format("of {}", bytes_text(r.memory.limit))}};
  if (r.price > 0)
    figures.push_back({fmt::format("{:.3g}", r.cost(r.load.served_rate)), "a million tokens",
                       fmt::format("at {} a device and hour", r.price)});
  page.figures(figures);
  page.section(r.ranks > 1 ? "Memory of each device" : "Memory", room_text(r));
  page.chart(memory_chart(r),
             "Every byte a device holds, by number of sequences at once; the dashed line is what it has.");
  page.section(
      "Roofline",
      r.compute_bound_batch > 0
          ? fmt::format("The products of a decode step turn from memory-bound to compute-bound at {} sequences; "
                        "attention never does, because every sequence has keys and values of its own.",
                        r.compute_bound_batch)
          : "The products of a decode step never turn compute-bound here.");
  page.chart(roofline_chart(r), fmt::format("Where products and attention lie under what memory and arithmetic allow; "
                                            "the two meet at {} operations a byte.",
                                            short_number(ridge_of(r))));
  if (!r.frontier.empty()) {
    page.section("Latency against throughput",
                 "More sequences at once share each reading of the weights, and each waits longer.");
    std::vector<std::pair<std::string, std::string>> pair = {
        {frontier_chart(r), "Each point is a number of sequences, up to where memory ends."}};
    if (!r.attention.empty())
      pair.emplace_back(
          attention_chart(r),
          fmt::format("Keys and values of {} × {} tokens, had the model other attention.", r.batch, r.context));
    page.charts(pair);
    add_frontier(page, r);
  }
  add_ops(page, r);
  if (r.ranks > 1) {
    page.note(
        fmt::format("Reducing over {} devices sends {} in a prefill and {} in a decode step, {} and {} of the time.",
                    r.ranks, short_bytes(r.prefill.reduce_bytes), short_bytes(r.decode.reduce_bytes),
                    short_seconds(r.prefill.reduce_seconds), short_seconds(r.decode.reduce_seconds)));
  }
  page.note(fmt::format("Stored scores of one layer would take {}; a running maximum and sum take {}.",
                        short_bytes(r.scores.stored), short_bytes(r.scores.running)));
  return page.html(fmt::format("millrace {} plan", kBuildInfo.version));
}

}  // namespace millrace::apps
