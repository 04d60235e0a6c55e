#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace millrace::report {
namespace {

constexpr std::string_view kStyle = R"(
:root{color-scheme:light dark;--bg:#fbfaf8;--card:#ffffff;--ink:#1d2126;--soft:#5d6670;--line:#e3e0da;--grid:#ecebe7;
--c0:#2b66c9;--c1:#d9702b;--c2:#2a8f5d;--c3:#8656c9;--c4:#c73e4d;--c5:#1a8fa3;--c6:#a3842a;--c7:#7b858f;--tint:#f1f5fc}
@media (prefers-color-scheme:dark){:root{--bg:#14171a;--card:#1b1f24;--ink:#e8eaed;--soft:#9aa4ae;--line:#2c3238;--grid:#262b31;
--c0:#6fa3f5;--c1:#f0995c;--c2:#5cc491;--c3:#b28cf0;--c4:#ee7683;--c5:#4fc3d6;--c6:#d1b35a;--c7:#98a2ac;--tint:#1e2733}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif}
main{max-width:1040px;margin:0 auto;padding:48px 28px 64px}
h1{font-size:30px;line-height:1.2;margin:0 0 6px;letter-spacing:-.015em;font-weight:650}
.sub{color:var(--soft);margin:0 0 28px;max-width:75ch}
h2{font-size:19px;margin:44px 0 4px;letter-spacing:-.005em;font-weight:650}
.lead{color:var(--soft);margin:0 0 16px;max-width:75ch}
p{max-width:75ch;margin:10px 0}
.note{color:var(--soft);font-size:13.5px}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(170px,1fr));gap:12px;margin:8px 0 8px}
.figure{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 16px}
.figure b{display:block;font-size:27px;line-height:1.15;font-weight:620;letter-spacing:-.02em;font-variant-numeric:tabular-nums}
.figure span{display:block;font-size:14px;margin-top:3px}
.figure i{display:block;font-style:normal;color:var(--soft);font-size:12.5px;margin-top:2px}
figure{margin:14px 0 8px;background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px 16px 10px;break-inside:avoid}
figcaption{color:var(--soft);font-size:13.5px;margin-top:8px}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(400px,100%),1fr));gap:14px}
.pair figure{margin:8px 0}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:10px;margin:14px 0 8px}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th{font-weight:600;color:var(--soft);font-size:12.5px;text-align:left;border-bottom:1px solid var(--line);white-space:nowrap}
th,td{padding:7px 12px}
td{border-top:1px solid var(--grid)}
tr:first-child td{border-top:0}
.n{text-align:right;white-space:nowrap}
tr.strong td{background:var(--tint);font-weight:600}
footer{margin-top:48px;color:var(--soft);font-size:13px;border-top:1px solid var(--line);padding-top:14px}
svg{display:block;width:100%;height:auto}
svg text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif;fill:var(--soft)}
svg .t{fill:var(--ink);font-weight:600;font-size:13px}
svg .v{fill:var(--ink)}
svg .g{stroke:var(--grid);stroke-width:1}
svg .a{stroke:var(--line);stroke-width:1}
svg .halo{paint-order:stroke;stroke:var(--card);stroke-width:4px;stroke-linejoin:round}
@media print{:root{--bg:#fff;--card:#fff;--ink:#000;--soft:#444;--line:#bbb;--grid:#e4e4e4;--tint:#f3f3f3;
--c0:#2b66c9;--c1:#d9702b;--c2:#2a8f5d;--c3:#8656c9;--c4:#c73e4d;--c5:#1a8fa3;--c6:#a3842a;--c7:#7b858f}
body{font-size:11pt}main{max-width:none;padding:0}.figures{grid-template-columns:repeat(auto-fit,minmax(120px,1fr))}h2{break-after:avoid}.lead{break-after:avoid}.scroll{overflow:visible}
tr{break-inside:avoid}*{-webkit-print-color-adjust:exact;print-color-adjust:exact}@page{margin:16mm}}
)";

// Length of the well-formed UTF-8 character at `at`, 0 if there is none.
size_t character(std::string_view text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const size_t length = lead < 0x80                   ? 1
                        : lead >= 0xC2 && lead < 0xE0 ? 2
                        : lead >= 0xE0 && lead < 0xF0 ? 3
                        : lead >= 0xF0 && lead < 0xF5 ? 4
                                                      : 0;
  if (length == 0 || at + length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[at + i]) & 0xC0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t length = character(text, at);
    const auto c = static_cast<unsigned char>(text[at]);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c < 0x20 || c == 0x7F) {
      out += ' ';
    } else {
      out += text.substr(at, length);
    }
    at += std::max<size_t>(length, 1);
  }
  return out;
}

std::string short_number(double value, int digits) {
  if (!std::isfinite(value)) return "-";
  if (value == 0) return "0";
  static constexpr std::string_view kLetters[] = {"", " k", " M", " G", " T", " P", " E"};
  size_t letter = 0;
  double left = std::abs(value);
  // Thousands stay whole numbers; 9999.6 would be shown as 10000.
  while (left >= (letter == 0 ? 9999.5 : 999.5) && letter + 1 < std::size(kLetters)) left /= 1000, ++letter;
  const int whole = left >= 1000 ? 4 : left >= 100 ? 3 : left >= 10 ? 2 : 1;
  int places = std::max(0, digits - whole);
  if (left < 1) places = std::min(6, digits - 1 - static_cast<int>(std::floor(std::log10(left))));
  std::string text = fmt::format("{:.{}f}", left, places);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return (value < 0 ? "−" : "") + text + std::string(kLetters[letter]);
}

std::string short_bytes(double bytes) {
  const std::string number = short_number(bytes);
  return number.find(' ') == std::string::npos ? number + " B" : number + "B";
}

std::string short_seconds(double seconds) {
  if (seconds == 0) return "0 s";
  const double size = std::abs(seconds);
  if (size < 0.9995e-6) return short_number(seconds * 1e9) + " ns";
  if (size < 0.9995e-3) return short_number(seconds * 1e6) + " µs";
  if (size < 0.9995) return short_number(seconds * 1e3) + " ms";
  if (size < 600) return short_number(seconds) + " s";
  return size < 36000 ? short_number(seconds / 60) + " min" : short_number(seconds / 3600) + " h";
}

void Page::figures(const std::vector<Figure>& figures) {
  body_ += "<div class=\"figures\">";
  for (const Figure& each : figures) {
    body_ += fmt::format("<div class=\"figure\"><b>{}</b><span>{}</span><i>{}</i></div>", escaped(each.value),
                         escaped(each.label), escaped(each.note));
  }
  body_ += "</div>\n";
}

void Page::section(std::string_view title, std::string_view lead) {
  body_ += fmt::format("<h2>{}</h2>\n", escaped(title));
  if (!lead.empty()) body_ += fmt::format("<p class=\"lead\">{}</p>\n", escaped(lead));
}

void Page::text(std::string_view paragraph) { body_ += fmt::format("<p>{}</p>\n", escaped(paragraph)); }

void Page::note(std::string_view paragraph) { body_ += fmt::format("<p class=\"note\">{}</p>\n", escaped(paragraph)); }

void Page::chart(std::string_view markup, std::string_view caption) {
  body_ += fmt::format("<figure>{}<figcaption>{}</figcaption></figure>\n", markup, escaped(caption));
}

void Page::charts(const std::vector<std::pair<std::string, std::string>>& side_by_side) {
  body_ += "<div class=\"pair\">";
  for (const auto& [markup, caption] : side_by_side) chart(markup, caption);
  body_ += "</div>\n";
}

void Page::table(const std::vector<Column>& columns, const std::vector<TableRow>& rows) {
  auto cell = [&](std::string_view tag, size_t column, std::string_view content) {
    const bool number = column < columns.size() && columns[column].number;
    body_ += fmt::format("<{0}{1}>{2}</{0}>", tag, number ? " class=\"n\"" : "", escaped(content));
  };
  body_ += "<div class=\"scroll\"><table><thead><tr>";
  for (size_t i = 0; i < columns.size(); ++i) cell("th", i, columns[i].title);
  body_ += "</tr></thead><tbody>\n";
  for (const TableRow& row : rows) {
    body_ += row.strong ? "<tr class=\"strong\">" : "<tr>";
    for (size_t i = 0; i < row.cells.size(); ++i) cell("td", i, row.cells[i]);
    body_ += "</tr>\n";
  }
  body_ += "</tbody></table></div>\n";
}

std::string Page::html(std::string_view made_by) const {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>{0}</title>\n<style>{1}</style>"
      "</head>\n<body><main>\n<h1>{0}</h1>\n<p class=\"sub\">{2}</p>\n{3}<footer>{4}</footer>\n</main></body></html>\n",
      escaped(title_), kStyle, escaped(subtitle_), body_, escaped(made_by));
}

}  // namespace millrace::report
