#include "apps/plan/expert_load.h"

#include <algorithm>
#include <numeric>

#include "backend/routing.h"
#include "model/ffns/ffns.h"
#include "report/chart.h"

namespace millrace::apps {
namespace {

double total(const ExpertLoad& load) {
  return static_cast<double>(std::accumulate(load.tokens.begin(), load.tokens.end(), int64_t{0}));
}

double busiest(const ExpertLoad& load) {
  const double all = total(load);
  return all > 0 ? static_cast<double>(*std::max_element(load.tokens.begin(), load.tokens.end())) / all : 0;
}

}  // namespace

std::vector<TouchedExperts> touched_by_batch(const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    const auto [experts, chosen] = experts_of(layer.ffn);
    if (experts == 0) continue;
    std::vector<TouchedExperts> touched;
    for (const int32_t batch : {1, 4, 16, 64})
      touched.push_back({batch, touched_experts(experts, chosen, batch), experts});
    return touched;
  }
  return {};
}

void print_touched(const Terminal& terminal, const std::vector<TouchedExperts>& touched) {
  if (touched.empty()) return;
  std::string batches, experts;
  for (const TouchedExperts& each : touched) {
    batches += fmt::format("{}{}", batches.empty() ? "" : ", ", each.batch);
    experts += fmt::format("{}{}", experts.empty() ? "" : ", ", each.experts);
  }
  terminal.print("steps of {} tokens that choose evenly read {} of a layer's {} experts\n", batches, experts,
                 touched.front().of);
}

JsonArray touched_json(const std::vector<TouchedExperts>& touched) {
  JsonArray rows;
  for (const TouchedExperts& each : touched)
    rows.push_back(JsonObject{{"batch", each.batch}, {"experts", each.experts}, {"of", each.of}});
  return rows;
}

std::string load_marks(const ExpertLoad& load) {
  static constexpr std::string_view kMarks = " .:-=+*#@";
  const double even = total(load) / static_cast<double>(std::max<size_t>(1, load.tokens.size()));
  std::string marks;
  for (const int64_t tokens : load.tokens) {
    // An even share is the middle mark, twice that the last.
    const double place = even > 0 ? static_cast<double>(tokens) / even * 4 : 0;
    const auto mark = static_cast<size_t>(std::clamp(place + 0.5, tokens > 0 ? 1.0 : 0.0, 8.0));
    marks += kMarks[mark];
  }
  return marks;
}

void print_experts(const Terminal& terminal, const std::vector<ExpertLoad>& loads) {
  if (loads.empty()) return;
  const size_t experts = loads.front().tokens.size();
  terminal.print("\n{}\n", terminal.out_paint(Style::bold, "Experts by layer"));
  terminal.print("a mark for each of {} experts: blank none, = an even share ({:.1f} %), @ twice that or more\n",
                 experts, 100.0 / static_cast<double>(experts));
  for (const ExpertLoad& load : loads) {
    const auto unused = std::count(load.tokens.begin(), load.tokens.end(), 0);
    terminal.print("{:>4} |{}| busiest {:.1f} %, {} unused, of {} choices\n", load.layer, load_marks(load),
                   100 * busiest(load), unused, std::accumulate(load.tokens.begin(), load.tokens.end(), int64_t{0}));
  }
}

JsonArray experts_json(const std::vector<ExpertLoad>& loads) {
  JsonArray rows;
  for (const ExpertLoad& load : loads) {
    JsonArray tokens;
    for (const int64_t each : load.tokens) tokens.emplace_back(each);
    rows.push_back(JsonObject{{"layer", load.layer}, {"tokens_by_expert", std::move(tokens)}});
  }
  return rows;
}

std::string experts_chart(const std::vector<ExpertLoad>& loads) {
  using namespace report;
  LineChart chart = {.x = {.title = "expert"},
                     .y = {.title = "share of a layer's tokens", .unit = Unit::percent},
                     .series = {},
                     .width = 920,
                     .height = 260};
  // The first, the middle and the last layer: more lines would hide each other.
  std::vector<size_t> shown = {0, loads.size() / 2, loads.size() - 1};
  shown.erase(std::unique(shown.begin(), shown.end()), shown.end());
  int colour = 0;
  for (const size_t index : shown) {
    const ExpertLoad& load = loads[index];
    Series series = {.name = fmt::format("layer {}", load.layer), .colour = colour++};
    const double all = std::max(1.0, total(load));
    for (size_t e = 0; e < load.tokens.size(); ++e)
      series.points.push_back({static_cast<double>(e), static_cast<double>(load.tokens[e]) / all});
    chart.series.push_back(std::move(series));
  }
  return draw(chart);
}

}  // namespace millrace::apps
