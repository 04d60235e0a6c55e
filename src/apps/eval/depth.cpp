#include "apps/eval/depth.h"

#include "base/result.h"
#include "report/chart.h"
#include "report/page.h"

namespace millrace::apps {

std::string depth_chart(std::span<const DepthLine> lines) {
  using namespace report;
  LineChart chart = {
      .x = {.title = "positions read before"}, .y = {.title = "mean KL from the base, nats"}, .series = {}};
  int colour = 0;
  for (const DepthLine& line : lines) {
    Series series = {.name = line.name, .points = {}, .colour = colour++ % 8};
    for (const DepthShare& depth : line.quality->depths) {
      if (depth.tokens == 0) continue;
      const double kl = depth.kl_sum / static_cast<double>(depth.tokens);
      series.points.push_back({.x = (static_cast<double>(depth.from) + static_cast<double>(depth.to)) / 2,
                               .y = kl,
                               .words = fmt::format("{}: positions {} to {}, KL {}", line.name, depth.from,
                                                    depth.to - 1, short_number(kl))});
    }
    chart.series.push_back(std::move(series));
  }
  return draw(chart);
}

}  // namespace millrace::apps
