#include "bench/serve_metrics.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>

namespace millrace {
namespace {

constexpr size_t kMostSeconds = 1 << 20;  // of a run, for the peaks

double mean_of(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation_of(const std::vector<double>& values) {
  double mean = mean_of(values), sum = 0;
  for (double value : values) sum += (value - mean) * (value - mean);
  return values.empty() ? 0 : std::sqrt(sum / static_cast<double>(values.size()));
}

double sorted_percentile(const std::vector<double>& sorted, double percent) {
  if (sorted.empty()) return 0;
  double at = std::clamp(percent, 0.0, 100.0) / 100 * static_cast<double>(sorted.size() - 1);
  size_t low = static_cast<size_t>(at), high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - static_cast<double>(low));
}

ServeSpread spread_of(std::vector<double> seconds, const std::vector<double>& percentiles) {
  std::sort(seconds.begin(), seconds.end());
  ServeSpread spread = {
      1000 * mean_of(seconds), 1000 * sorted_percentile(seconds, 50), 1000 * deviation_of(seconds), {}};
  for (double percent : percentiles) spread.percentiles.push_back(1000 * sorted_percentile(seconds, percent));
  return spread;
}

double tpot_of(const ServeRecord& record) {
  if (record.output_tokens <= 1) return 0;
  return (record.latency - record.first_token) / static_cast<double>(record.output_tokens - 1);
}

bool good(const ServeRecord& record, const ServeGoals& goals) {
  return (!goals.ttft || record.first_token * 1000 <= *goals.ttft) &&
         (!goals.tpot || tpot_of(record) * 1000 <= *goals.tpot) &&
         (!goals.e2el || record.latency * 1000 <= *goals.e2el);
}

// Pieces that arrived and requests that were open, by whole seconds after the first request.
void find_peaks(const std::vector<ServeRecord>& records, ServeReport& report) {
  double begin = 0, end = 0;
  bool any = false;
  for (const ServeRecord& record : records) {
    if (!record.ok) continue;
    begin = any ? std::min(begin, record.start) : record.start;
    end = any ? std::max(end, record.start + record.latency) : record.start + record.latency;
    any = true;
  }
  if (!any) return;
  size_t seconds = std::min(kMostSeconds, static_cast<size_t>(std::ceil(end - begin)) + 1);
  std::vector<int64_t> tokens(seconds, 0), open(seconds, 0);
  auto second_of = [&](double time) { return std::min(seconds - 1, static_cast<size_t>(std::max(0.0, time - begin))); };
  for (const ServeRecord& record : records) {
    if (!record.ok) continue;
    double time = record.start + record.first_token;
    ++tokens[second_of(time)];
    for (double gap : record.next_tokens) ++tokens[second_of(time += gap)];
    for (size_t s = second_of(record.start); s <= second_of(record.start + record.latency); ++s) ++open[s];
  }
  report.peak_output_per_second = static_cast<double>(*std::max_element(tokens.begin(), tokens.end()));
  report.peak_requests = *std::max_element(open.begin(), open.end());
}

struct Kind {
  const char* key;
  const char* name;
  const char* header;
  ServeSpread ServeReport::*spread;
};
constexpr std::array<Kind, 4> kKinds = {{
    {"ttft", "TTFT", "Time to First Token", &ServeReport::ttft},
    {"tpot", "TPOT", "Time per Output Token (excl. 1st token)", &ServeReport::tpot},
    {"itl", "ITL", "Inter-token Latency", &ServeReport::itl},
    {"e2el", "E2EL", "End-to-end Latency", &ServeReport::e2el},
}};

bool selected(const ServeShown& shown, const Kind& kind) {
  return std::find(shown.metrics.begin(), shown.metrics.end(), kind.key) != shown.metrics.end();
}

std::string line(std::string_view name, int64_t value) { return fmt::format("{:<40} {:<10}\n", name, value); }
std::string line(std::string_view name, double value) { return fmt::format("{:<40} {:<10.2f}\n", name, value); }

std::string kind_text(const Kind& kind, const ServeReport& report, const ServeShown& shown) {
  const ServeSpread& spread = report.*kind.spread;
  std::string text = fmt::format("{:-^50}\n", kind.header);
  text += line(fmt::format("Mean {} (ms):", kind.name), spread.mean);
  text += line(fmt::format("Median {} (ms):", kind.name), spread.median);
  for (size_t i = 0; i < shown.percentiles.size() && i < spread.percentiles.size(); ++i) {
    text += line(fmt::format("P{:g} {} (ms):", shown.percentiles[i], kind.name), spread.percentiles[i]);
  }
  return text;
}

void add_records(JsonObject& json, const std::vector<ServeRecord>& records) {
  JsonArray input, output, ttfts, itls, starts, texts, errors;
  for (const ServeRecord& record : records) {
    input.push_back(record.prompt_tokens);
    output.push_back(record.output_tokens);
    ttfts.push_back(record.first_token);
    itls.push_back(JsonArray(record.next_tokens.begin(), record.next_tokens.end()));
    starts.push_back(record.start);
    texts.push_back(Json(record.text));
    errors.push_back(Json(record.error));
  }
  json["input_lens"] = std::move(input);
  json["output_lens"] = std::move(output);
  json["ttfts"] = std::move(ttfts);
  json["itls"] = std::move(itls);
  json["start_times"] = std::move(starts);
  json["generated_texts"] = std::move(texts);
  json["errors"] = std::move(errors);
}

}  // namespace

double percentile(std::vector<double> values, double percent) {
  std::sort(values.begin(), values.end());
  return sorted_percentile(values, percent);
}

Result<void> add_goal(ServeGoals& goals, std::string_view text) {
  size_t colon = text.find(':');
  double value = 0;
  std::string_view number = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  auto [end, failed] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (number.empty() || failed != std::errc() || end != number.data() + number.size() || !(value >= 0)) {
    return error(Code::invalid, "'{}' is no goal: give NAME:MILLISECONDS, such as ttft:500", text);
  }
  std::string_view name = text.substr(0, colon);
  if (name == "ttft") {
    goals.ttft = value;
  } else if (name == "tpot") {
    goals.tpot = value;
  } else if (name == "e2el") {
    goals.e2el = value;
  } else {
    return error(Code::invalid, "there is no goal '{}': use ttft, tpot or e2el", name);
  }
  return {};
}

double ServeReport::attainment() const {
  int64_t all = completed + failed;
  return all > 0 ? static_cast<double>(good) / static_cast<double>(all) : 0;
}

ServeReport report_serve(const std::vector<ServeRecord>& records, double seconds, const ServeGoals& goals,
                         const std::vector<double>& percentiles) {
  ServeReport report = {.seconds = seconds};
  std::vector<double> ttfts, tpots, itls, e2els;
  for (const ServeRecord& record : records) {
    if (!record.ok) {
      ++report.failed;
      continue;
    }
    ++report.completed;
    if (good(record, goals)) ++report.good;
    report.tokens_in += record.prompt_tokens;
    report.tokens_out += record.output_tokens;
    report.tokens_cached += record.cached_tokens;
    ttfts.push_back(record.first_token);
    e2els.push_back(record.latency);
    if (record.output_tokens > 1) tpots.push_back(tpot_of(record));
    itls.insert(itls.end(), record.next_tokens.begin(), record.next_tokens.end());
  }
  auto a_second = [&](int64_t count) { return seconds > 0 ? static_cast<double>(count) / seconds : 0; };
  report.requests_per_second = a_second(report.completed);
  report.good_per_second = a_second(report.good);
  report.output_per_second = a_second(report.tokens_out);
  report.tokens_per_second = a_second(report.tokens_in + report.tokens_out);
  report.ttft = spread_of(std::move(ttfts), percentiles);
  report.tpot = spread_of(std::move(tpots), percentiles);
  report.itl = spread_of(std::move(itls), percentiles);
  report.e2el = spread_of(std::move(e2els), percentiles);
  find_peaks(records, report);
  return report;
}

std::string serve_text(const ServeReport& report, const ServeShown& shown) {
  std::string text = fmt::format("{:=^50}\n", " Serving Benchmark Result ");
  text += line("Successful requests:", report.completed);
  text += line("Failed requests:", report.failed);
  if (shown.max_concurrency) text += line("Maximum request concurrency:", int64_t{*shown.max_concurrency});
  if (shown.rate) text += line("Request rate configured (RPS):", *shown.rate);
  text += line("Benchmark duration (s):", report.seconds);
  text += line("Total input tokens:", report.tokens_in);
  text += line("Total generated tokens:", report.tokens_out);
  text += line("Request throughput (req/s):", report.requests_per_second);
  if (shown.goodput) text += line("Request goodput (req/s):", report.good_per_second);
  text += line("Output token throughput (tok/s):", report.output_per_second);
  text += line("Peak output token throughput (tok/s):", report.peak_output_per_second);
  text += line("Peak concurrent requests:", static_cast<double>(report.peak_requests));
  text += line("Total token throughput (tok/s):", report.tokens_per_second);
  for (const Kind& kind : kKinds) {
    if (selected(shown, kind)) text += kind_text(kind, report, shown);
  }
  return text + std::string(50, '=') + "\n";
}

JsonObject serve_json(const ServeReport& report, const ServeShown& shown, const std::vector<ServeRecord>* records) {
  JsonObject json = {{"duration", report.seconds},
                     {"completed", report.completed},
                     {"failed", report.failed},
                     {"total_input_tokens", report.tokens_in},
                     {"total_output_tokens", report.tokens_out},
                     {"total_cached_tokens", report.tokens_cached},
                     {"request_throughput", report.requests_per_second},
                     {"request_goodput", shown.goodput ? Json(report.good_per_second) : Json(nullptr)},
                     {"output_throughput", report.output_per_second},
                     {"total_token_throughput", report.tokens_per_second}};
  if (records != nullptr) add_records(json, *records);
  json["max_output_tokens_per_s"] = report.peak_output_per_second;
  json["max_concurrent_requests"] = report.peak_requests;
  for (const Kind& kind : kKinds) {
    if (!selected(shown, kind)) continue;
    const ServeSpread& spread = report.*kind.spread;
    json[fmt::format("mean_{}_ms", kind.key)] = spread.mean;
    json[fmt::format("median_{}_ms", kind.key)] = spread.median;
    json[fmt::format("std_{}_ms", kind.key)] = spread.deviation;
    for (size_t i = 0; i < shown.percentiles.size() && i < spread.percentiles.size(); ++i) {
      json[fmt::format("p{:g}_{}_ms", shown.percentiles[i], kind.key)] = spread.percentiles[i];
    }
  }
  return json;
}

}  // namespace millrace
