// KL against depth as a chart: how far a variant's distributions are from the base's where more has been read. Pure.
#pragma once

#include <span>
#include <string>

#include "eval/compare.h"

namespace millrace::apps {

struct DepthLine {
  std::string name;
  const Comparison* quality;
};

// Markup for report/page.h; a depth of which nothing was scored has no point.
std::string depth_chart(std::span<const DepthLine> lines);

}  // namespace millrace::apps
