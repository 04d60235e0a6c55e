// Charts as SVG markup: lines and points over two axes, and bars made of parts. Colours are numbers 0 to 7 of the
// page's palette (report/page.h), so a chart is light or dark with the page. Hovering a point or part shows its words.
// Values that are not finite, or not above zero on a logarithmic axis, are left out. Pure; any thread.
#pragma once

#include <string>
#include <vector>

namespace millrace::report {

enum class Unit : unsigned char { number, bytes, seconds, percent };

struct Axis {
  std::string title;
  Unit unit = Unit::number;
  bool logarithmic = false;
  bool from_zero = true;           // linear axes begin at zero
  std::vector<double> ticks = {};  // these only; empty: round numbers
};

struct Point {
  double x = 0, y = 0;
  std::string label = {};  // written beside it
  std::string words = {};  // shown when hovered; empty: the numbers
};

struct Series {
  std::string name;
  std::vector<Point> points;
  int colour = 0;
  bool line = true, dots = true, dashed = false;
};

struct LineChart {
  Axis x, y;
  std::vector<Series> series;
  int width = 920, height = 380;
};
std::string draw(const LineChart& chart);

struct BarPart {
  double value = 0;
  int colour = 0;
  std::string words = {};
};

struct Bar {
  std::string label, note;  // left of it, right of it
  std::vector<BarPart> parts;
};

struct BarChart {
  std::vector<std::pair<std::string, int>> legend;  // name and colour
  std::vector<Bar> bars;
  Unit unit = Unit::number;
  double limit = 0;  // a line across all bars; 0: none
  std::string limit_label = {};
  int width = 920;
};
std::string draw(const BarChart& chart);

std::string with_unit(double value, Unit unit);

}  // namespace millrace::report
