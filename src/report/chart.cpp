#include "report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/page.h"

namespace millrace::report {
namespace {

// About how wide a text is drawn at 12 px.
double text_width(std::string_view text) {
  double characters = 0;
  for (char c : text) characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return 6.5 * characters;
}

// One axis: where a value lies between two pixels.
class Scale {
 public:
  Scale(const Axis& axis, double low, double high, double from, double to) : axis_(axis), from_(from), to_(to) {
    if (axis.logarithmic) {
      low_ = std::log10(low), high_ = std::log10(high);
      const double room = std::max(0.02, 0.06 * (high_ - low_));
      low_ -= room, high_ += room;
    } else {
      low_ = axis.from_zero ? std::min(0.0, low) : low;
      high_ = high;
      if (high_ <= low_) high_ = low_ + 1;
    }
    if (!axis.ticks.empty()) {
      ticks_ = axis.ticks;
    } else {
      ticks_ = axis.logarithmic ? logarithmic_ticks() : linear_ticks();
    }
    // Upwards there is room to the next round number; sideways the last point may end the chart.
    if (!axis.logarithmic && to < from) high_ = std::max(high_, ticks_.back());
  }

  bool shows(double value) const { return std::isfinite(value) && (!axis_.logarithmic || value > 0); }
  double at(double value) const {
    const double place = axis_.logarithmic ? std::log10(value) : value;
    return from_ + (place - low_) / (high_ - low_) * (to_ - from_);
  }
  bool within(double value) const {
    const double place = axis_.logarithmic ? std::log10(value) : value;
    return place >= low_ - 1e-9 && place <= high_ + 1e-9;
  }
  const std::vector<double>& ticks() const { return ticks_; }

 private:
  std::vector<double> linear_ticks() const {
    const double rough = (high_ - low_) / 5, magnitude = std::pow(10, std::floor(std::log10(rough)));
    double step = magnitude;
    for (double factor : {2.0, 5.0, 10.0}) {
      if (step < rough) step = factor * magnitude;
    }
    std::vector<double> ticks;
    for (double tick = std::ceil(low_ / step - 1e-9) * step; tick < high_ + step * 0.999; tick += step)
      ticks.push_back(std::abs(tick) < step * 1e-9 ? 0 : tick);
    return ticks;
  }

  std::vector<double> logarithmic_ticks() const {
    std::vector<double> ticks;
    const double decades = high_ - low_;
    for (int power = static_cast<int>(std::floor(low_)); power <= static_cast<int>(std::ceil(high_)); ++power) {
      if (decades > 7 && power % 2 != 0) continue;
      for (double factor : {1.0, 2.0, 5.0}) {
        if (decades > 2.2 && factor > 1) continue;
        const double tick = factor * std::pow(10, power);
        if (within(tick)) ticks.push_back(tick);
      }
    }
    return ticks;
  }

  const Axis& axis_;
  double from_, to_, low_ = 0, high_ = 1;
  std::vector<double> ticks_;
};

struct Range {
  double low = INFINITY, high = -INFINITY;
  void add(double value, bool logarithmic) {
    if (!std::isfinite(value) || (logarithmic && value <= 0)) return;
    low = std::min(low, value), high = std::max(high, value);
  }
  void settle(bool logarithmic) {
    if (low > high) low = logarithmic ? 1 : 0, high = logarithmic ? 10 : 1;
    if (logarithmic && low == high) low /= 2, high *= 2;
  }
};

struct Frame {
  double left, right, top, bottom;
};

std::string axes(const LineChart& chart, const Scale& x, const Scale& y, const Frame& frame) {
  std::string out;
  for (double tick : y.ticks()) {
    if (!y.within(tick)) continue;
    out += fmt::format("<line class=\"g\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", frame.left,
                       frame.right, y.at(tick), y.at(tick));
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", frame.left - 8, y.at(tick) + 4,
                       escaped(with_unit(tick, chart.y.unit)));
  }
  double last = -1e9;
  for (double tick : x.ticks()) {
    const std::string label = with_unit(tick, chart.x.unit);
    if (!x.within(tick) || x.at(tick) - last < text_width(label) + 12) continue;
    last = x.at(tick);
    out += fmt::format("<line class=\"g\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", last, last,
                       frame.top, frame.bottom);
    const bool edge = last + text_width(label) / 2 > frame.right + 12;
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>", edge ? frame.right + 12 : last,
                       frame.bottom + 18, edge ? "end" : "middle", escaped(label));
  }
  out += fmt::format("<line class=\"a\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", frame.left,
                     frame.right, frame.bottom, frame.bottom);
  out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", frame.right, frame.bottom + 36,
                     escaped(chart.x.title));
  out += fmt::format("<text class=\"v\" x=\"{:.1f}\" y=\"14\">{}</text>", 4.0, escaped(chart.y.title));
  return out;
}

std::string legend(const std::vector<std::pair<std::string, int>>& names, double right, double y) {
  std::string out;
  double total = 0;
  for (const auto& [name, colour] : names) total += text_width(name) + 34;
  double at = right - total + 16;
  for (const auto& [name, colour] : names) {
    out += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"4\" rx=\"2\" fill=\"var(--c{})\"/>", at,
                       y - 6, colour & 7);
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", at + 18, y, escaped(name));
    at += text_width(name) + 34;
  }
  return out;
}

// Words beside points, each where it covers no other.
class Labels {
 public:
  explicit Labels(const Frame& frame) : frame_(frame) {}

  void avoid(double x, double y) { taken_.push_back({x - 5, x + 5, y - 5, y + 5}); }
  std::string place(double x, double y, const std::string& text) {
    const double wide = text_width(text);
    struct Choice {
      double x, y;
      bool leftward;
    };
    Choice best = {x + 9, y - 7, false};
    for (const Choice& each :
         {Choice{x + 9, y - 7, false}, {x + 9, y + 17, false}, {x - 9, y - 7, true}, {x - 9, y + 17, true}}) {
      const Frame box = {each.leftward ? each.x - wide : each.x, each.leftward ? each.x : each.x + wide, each.y - 11,
                         each.y + 3};
      if (!free(box)) continue;
      best = each;
      break;
    }
    taken_.push_back(
        {best.leftward ? best.x - wide : best.x, best.leftward ? best.x : best.x + wide, best.y - 11, best.y + 3});
    return fmt::format("<text class=\"v halo\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>", best.x, best.y,
                       best.leftward ? "end" : "start", escaped(text));
  }

 private:
  bool free(const Frame& box) const {
    if (box.left < frame_.left || box.right > frame_.right + 8 || box.top < frame_.top - 6 ||
        box.bottom > frame_.bottom)
      return false;
    return std::none_of(taken_.begin(), taken_.end(), [&](const Frame& other) {
      return box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom;
    });
  }

  Frame frame_;
  std::vector<Frame> taken_;
};

std::string series_markup(const LineChart& chart, const Series& series, const Scale& x, const Scale& y) {
  std::string path, dots;
  for (const Point& point : series.points) {
    if (!x.shows(point.x) || !y.shows(point.y)) continue;
    const double px = x.at(point.x), py = y.at(point.y);
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", px, py);
    const std::string words =
        point.words.empty()
            ? fmt::format("{}: {}, {}", series.name, with_unit(point.x, chart.x.unit), with_unit(point.y, chart.y.unit))
            : point.words;
    if (series.dots) {
      dots += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"var(--c{})\" stroke=\"var(--card)\" "
          "stroke-width=\"1.5\"><title>{}</title></circle>",
          px, py, series.colour & 7, escaped(words));
    }
  }
  std::string out;
  if (series.line && !path.empty()) {
    out += fmt::format(
        "<path d=\"{}\" fill=\"none\" stroke=\"var(--c{})\" stroke-width=\"2\" stroke-linejoin=\"round\"{}/>", path,
        series.colour & 7, series.dashed ? " stroke-dasharray=\"5 5\"" : "");
  }
  return out + dots;
}

std::string label_markup(const LineChart& chart, const Scale& x, const Scale& y, const Frame& frame) {
  Labels labels(frame);
  std::string out;
  auto each = [&](auto&& what) {
    for (const Series& series : chart.series) {
      for (const Point& point : series.points) {
        if (x.shows(point.x) && y.shows(point.y)) what(series, point, x.at(point.x), y.at(point.y));
      }
    }
  };
  each([&](const Series& series, const Point&, double px, double py) {
    if (series.dots) labels.avoid(px, py);
  });
  each([&](const Series&, const Point& point, double px, double py) {
    if (!point.label.empty()) out += labels.place(px, py, point.label);
  });
  return out;
}

}  // namespace

std::string with_unit(double value, Unit unit) {
  switch (unit) {
    case Unit::bytes:
      return short_bytes(value);
    case Unit::seconds:
      return short_seconds(value);
    case Unit::percent:
      return short_number(100 * value) + " %";
    case Unit::number:
      break;
  }
  return short_number(value);
}

std::string draw(const LineChart& chart) {
  const Frame frame = {64, chart.width - 14.0, 34, chart.height - 48.0};
  Range xs, ys;
  std::vector<std::pair<std::string, int>> names;
  for (const Series& series : chart.series) {
    if (!series.name.empty()) names.emplace_back(series.name, series.colour);
    for (const Point& point : series.points) xs.add(point.x, chart.x.logarithmic), ys.add(point.y, chart.y.logarithmic);
  }
  xs.settle(chart.x.logarithmic), ys.settle(chart.y.logarithmic);
  const Scale x(chart.x, xs.low, xs.high, frame.left, frame.right),
      y(chart.y, ys.low, ys.high, frame.bottom, frame.top);
  std::string out = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{} over {}\">", chart.width,
                                chart.height, escaped(chart.y.title), escaped(chart.x.title));
  out += axes(chart, x, y, frame);
  if (names.size() > 1) out += legend(names, frame.right, 14);
  for (const Series& series : chart.series) out += series_markup(chart, series, x, y);
  return out + label_markup(chart, x, y, frame) + "</svg>";
}

std::string draw(const BarChart& chart) {
  double label_width = 0, note_width = 0, most = chart.limit;
  for (const Bar& bar : chart.bars) {
    label_width = std::max(label_width, text_width(bar.label));
    note_width = std::max(note_width, text_width(bar.note));
    double sum = 0;
    for (const BarPart& part : bar.parts) sum += part.value;
    most = std::max(most, sum);
  }
  const double top = chart.legend.empty() ? 6 : 30, row = 30, left = label_width + 16,
               right = chart.width - note_width - 18,
               height = top + row * static_cast<double>(chart.bars.size()) + 8 + (chart.limit > 0 ? 18 : 0);
  const double scale = most > 0 ? (right - left) / most : 0;
  std::string out = fmt::format("<svg viewBox=\"0 0 {} {:.0f}\" role=\"img\">", chart.width, height);
  if (!chart.legend.empty()) out += legend(chart.legend, chart.width - 6.0, 14);
  double y = top;
  for (const Bar& bar : chart.bars) {
    out += fmt::format("<text class=\"v\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", left - 10, y + 17,
                       escaped(bar.label));
    double at = left;
    for (const BarPart& part : bar.parts) {
      const double wide = std::max(0.0, part.value) * scale;
      if (wide < 0.2) continue;
      out += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"18\" rx=\"2\" "
          "fill=\"var(--c{})\"><title>{}</title>"
          "</rect>",
          at, y + 4, std::max(0.5, wide - 1), part.colour & 7,
          escaped(part.words.empty() ? with_unit(part.value, chart.unit) : part.words));
      at += wide;
    }
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", at + 8, y + 17, escaped(bar.note));
    y += row;
  }
  if (chart.limit > 0) {
    const double at = left + chart.limit * scale;
    out += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" stroke=\"var(--ink)\" stroke-dasharray=\"4 "
        "4\"/><text x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"end\">{4}</text>",
        at, top, y, y + 15, escaped(chart.limit_label));
  }
  return out + "</svg>";
}

}  // namespace millrace::report
