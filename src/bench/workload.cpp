#include "bench/workload.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"

namespace millrace {
namespace {

constexpr int kStretch = 512;  // tokens one of Mooncake's hash ids stands for

struct TraceLine {
  double time = 0;
  int64_t prompt = 0, output = 0;
  std::vector<int64_t> hashes;
};

// Token i of the text called `name`. Ids below 8 are left to special tokens.
Token token_of(uint64_t seed, int64_t name, int i, int vocab) {
  double draw = uniform({.seed = seed,
                         .choice = static_cast<uint32_t>(name),
                         .position = static_cast<uint32_t>(i),
                         .draw = static_cast<uint32_t>(name >> 32)});
  int first = std::min(8, vocab - 1);
  return first + static_cast<Token>(draw * (vocab - first));
}

template <class T>
bool parse_number(std::string_view text, T& out) {
  auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), out);
  return failed == std::errc() && end == text.data() + text.size();
}

// "2023-11-16 18:15:46.6805900" as seconds of its day and month; traces are shorter than a month.
bool parse_timestamp(std::string_view text, double& seconds) {
  if (text.size() < 19 || text[4] != '-' || text[10] != ' ' || text[13] != ':') return false;
  int day = 0, hour = 0, minute = 0;
  double second = 0;
  if (!parse_number(text.substr(8, 2), day) || !parse_number(text.substr(11, 2), hour) ||
      !parse_number(text.substr(14, 2), minute) || !parse_number(text.substr(17), second)) {
    return false;
  }
  seconds = ((day * 24.0 + hour) * 60 + minute) * 60 + second;
  return true;
}

Result<TraceLine> parse_csv_line(std::string_view line, size_t number) {
  size_t first = line.find(','), second = line.find(',', first == std::string_view::npos ? first : first + 1);
  TraceLine asked;
  if (second == std::string_view::npos || !parse_timestamp(line.substr(0, first), asked.time) ||
      !parse_number(line.substr(first + 1, second - first - 1), asked.prompt) ||
      !parse_number(line.substr(second + 1), asked.output)) {
    return error(Code::invalid, "line {} is not TIMESTAMP,ContextTokens,GeneratedTokens: '{}'", number,
                 line.substr(0, 60));
  }
  return asked;
}

Result<TraceLine> parse_json_line(std::string_view line, size_t number) {
  auto parsed = parse_json(line);
  if (!parsed.ok()) return within(fmt::format("line {}", number), parsed.error());
  TraceLine asked;
  TRY(double milliseconds, get_number(*parsed, "timestamp", 0));
  asked.time = milliseconds / 1000;
  TRY(asked.prompt, get_int(*parsed, "input_length", 0));
  TRY(asked.output, get_int(*parsed, "output_length", 0));
  if (const Json* hashes = find(*parsed, "hash_ids"); hashes != nullptr && hashes->is_array()) {
    for (const Json& hash : hashes->get_array()) {
      if (!hash.is_int64()) return error(Code::invalid, "line {}: hash_ids should be whole numbers", number);
      asked.hashes.push_back(hash.get_int64());
    }
  }
  return asked;
}

// All lengths shrink by the one factor that brings the longest request into the context, so that their proportions
// stay.
std::vector<Arrival> scaled(std::vector<TraceLine> all, const WorkloadLimits& limits) {
  if (limits.requests > 0 && all.size() > static_cast<size_t>(limits.requests))
    all.resize(static_cast<size_t>(limits.requests));
  int64_t longest = 1;
  for (const TraceLine& asked : all) longest = std::max(longest, asked.prompt + asked.output);
  double factor = std::min(1.0, static_cast<double>(limits.context - 2) / static_cast<double>(longest));
  int stretch = std::max(1, static_cast<int>(kStretch * factor));
  std::vector<Arrival> arrivals;
  for (size_t n = 0; n < all.size(); ++n) {
    const TraceLine& asked = all[n];
    Arrival arrival = {.time = (asked.time - all[0].time) / limits.speed};
    arrival.output = std::max(1, static_cast<int>(static_cast<double>(asked.output) * factor));
    int prompt = std::max(1, static_cast<int>(static_cast<double>(asked.prompt) * factor));
    for (int i = 0; i < prompt; ++i) {
      size_t part = static_cast<size_t>(i / stretch);
      bool named = part < asked.hashes.size();
      int64_t name = named ? asked.hashes[part] + 1 : -1 - static_cast<int64_t>(n);
      arrival.prompt.push_back(token_of(limits.seed, name, named ? i % stretch : i, limits.vocab));
    }
    arrivals.push_back(std::move(arrival));
  }
  return arrivals;
}

}  // namespace

Result<std::vector<Arrival>> parse_trace(std::string_view text, const WorkloadLimits& limits) {
  std::vector<TraceLine> all;
  size_t number = 0;
  while (!text.empty()) {
    size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    ++number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty() || line.starts_with("TIMESTAMP")) continue;
    TRY(TraceLine asked, line[0] == '{' ? parse_json_line(line, number) : parse_csv_line(line, number));
    if (asked.prompt < 0 || asked.output < 0 || asked.prompt > (1 << 30) || asked.output > (1 << 30)) {
      return error(Code::invalid, "line {}: {} and {} are no lengths", number, asked.prompt, asked.output);
    }
    all.push_back(std::move(asked));
  }
  if (all.empty()) return error(Code::invalid, "the trace has no requests");
  std::stable_sort(all.begin(), all.end(), [](const TraceLine& a, const TraceLine& b) { return a.time < b.time; });
  return scaled(std::move(all), limits);
}

Result<std::vector<Arrival>> read_trace(const std::filesystem::path& path, const WorkloadLimits& limits) {
  TRY(std::string text, read_file(path));
  auto parsed = parse_trace(text, limits);
  if (!parsed.ok()) return within(path.string(), parsed.error());
  return parsed;
}

std::vector<Arrival> poisson(const PoissonShape& shape, const WorkloadLimits& limits) {
  std::vector<Arrival> arrivals;
  double time = 0;
  for (int n = 0; n < shape.requests; ++n) {
    auto draw = [&](uint32_t what) {
      return uniform({.seed = limits.seed, .choice = 0xffffffff, .position = static_cast<uint32_t>(n), .draw = what});
    };
    auto length = [&](int mean, uint32_t what) {
      return shape.exact ? mean : static_cast<int>(mean * (0.5 + draw(what)));
    };
    Arrival arrival = {.time = time / limits.speed};
    int prompt = std::clamp(length(shape.prompt, 0), 1, limits.context - 2);
    arrival.output = std::clamp(length(shape.output, 1), 1, limits.context - prompt);
    for (int i = 0; i < prompt; ++i) {
      arrival.prompt.push_back(token_of(limits.seed, i < shape.shared ? 0 : n + 1, i, limits.vocab));
    }
    arrivals.push_back(std::move(arrival));
    time += -std::log(1 - draw(2)) / shape.rate;
  }
  return arrivals;
}

}  // namespace millrace
