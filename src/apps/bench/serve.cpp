#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "apps/cli/flags.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "bench/serve_client.h"
#include "bench/serve_load.h"

namespace millrace::apps {
namespace {

// Everything a run needs that does not change with the rate.
struct Plan {
  ServeTarget target;
  std::string model;
  std::vector<Arrival> arrivals;  // due at their own times if they come from a trace
  JsonObject extra;               // fields of every request
  ServeRun run;
  ServePace pace;
  ServeGoals goals;
  ServeShown shown;
  bool own_times = false;
  int vocab = 0;
  uint64_t seed = 0;
};

Result<std::optional<double>> rate_of(std::string_view text) {
  if (text == "inf") return std::optional<double>();
  double rate = 0;
  auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), rate);
  if (failed != std::errc() || end != text.data() + text.size() || !(rate > 0) || rate > 1e6) {
    return error(Code::invalid, "'{}' is no rate: give requests a second, or inf for all at once", text);
  }
  return std::optional(rate);
}

Result<std::pair<std::string, std::string>> key_value(const std::string& text) {
  size_t equals = text.find('=');
  bool clean = text.find_first_of("\r\n") == std::string::npos;
  if (equals == std::string::npos || equals == 0 || !clean) {
    return error(Code::invalid, "'{}' should be KEY=VALUE", text);
  }
  return std::pair(text.substr(0, equals), text.substr(equals + 1));
}

Result<ServeTarget> target_of(const Arguments& arguments) {
  std::string url = arguments.text("base-url");
  if (url.empty()) url = fmt::format("http://{}:{}", arguments.text("host"), arguments.integer("port"));
  TRY(ServeTarget target, parse_target(url));
  const char* key = std::getenv("OPENAI_API_KEY");
  if (key != nullptr && *key != 0) target.headers.emplace_back("Authorization", fmt::format("Bearer {}", key));
  for (const std::string& header : arguments.texts("header")) {
    TRY(auto pair, key_value(header));
    target.headers.push_back(std::move(pair));
  }
  return target;
}

// The first model the server names, and how many tokens it knows, where it says.
struct Served {
  std::string model;
  int vocab = 0;
};
Result<Served> ask_models(const ServeTarget& target) {
  TRY(std::string text, get_text(target, "/v1/models"));
  TRY(Json json, parse_json(text));
  const Json* data = find(json, "data");
  if (data == nullptr || !data->is_array() || data->get_array().empty()) {
    return error(Code::not_found, "/v1/models names no model; give one with --model");
  }
  const Json& first = data->get_array()[0];
  Served served;
  TRY(served.model, get_string(first, "id", ""));
  if (const Json* meta = find(first, "meta")) {
    if (auto count = get_int(*meta, "n_vocab", 0); count.ok() && *count < (1 << 30))
      served.vocab = static_cast<int>(*count);
  }
  return served;
}

Result<std::vector<Arrival>> arrivals_of(const Arguments& arguments, int vocab, uint64_t seed) {
  std::string name = arguments.text("dataset-name");
  auto whole = [&](std::string_view flag) { return static_cast<int>(arguments.integer(flag)); };
  if (name == "timed_trace") {
    return read_trace(arguments.text("dataset-path"), {.context = whole("max-model-len"),
                                                       .vocab = vocab,
                                                       .requests = whole("num-prompts"),
                                                       .speed = arguments.number("speed"),
                                                       .seed = seed});
  }
  ServeShape shape = {.requests = whole("num-prompts"),
                      .input = whole("random-input-len"),
                      .output = whole("random-output-len"),
                      .range_ratio = arguments.number("random-range-ratio"),
                      .prefix = whole("random-prefix-len"),
                      .vocab = vocab,
                      .seed = seed};
  if (name == "prefix_repetition") {
    shape.prefix = whole("prefix-repetition-prefix-len");
    shape.input = whole("prefix-repetition-suffix-len");
    shape.output = whole("prefix-repetition-output-len");
    shape.prefixes = whole("prefix-repetition-num-prefixes");
  }
  if (arguments.given("input-len")) shape.input = whole("input-len");
  if (arguments.given("output-len")) shape.output = whole("output-len");
  return serve_prompts(shape);
}

Result<JsonObject> extra_of(const Arguments& arguments) {
  JsonObject extra;
  for (const char* flag : {"temperature", "top-p", "top-k", "min-p", "frequency-penalty", "presence-penalty",
                           "repetition-penalty", "logprobs"}) {
    if (!arguments.given(flag)) continue;
    std::string name = flag;
    std::replace(name.begin(), name.end(), '-', '_');
    bool whole = name == "top_k" || name == "logprobs";
    extra[name] = whole ? Json(arguments.integer(flag)) : Json(arguments.number(flag));
  }
  if (arguments.toggle("ignore-eos")) extra["ignore_eos"] = true;
  if (auto text = arguments.maybe_text("extra-body"); text.has_value()) {
    auto parsed = parse_json(*text);
    if (!parsed.ok()) return within("--extra-body", parsed.error());
    if (!parsed->is_object()) return error(Code::invalid, "--extra-body should be a JSON object");
    for (const auto& [key, value] : parsed->get_object()) extra[key] = value;
  }
  return extra;
}

Result<ServeShown> shown_of(const Arguments& arguments) {
  ServeShown shown;
  shown.metrics = arguments.texts("percentile-metrics");
  for (const std::string& metric : shown.metrics) {
    if (metric != "ttft" && metric != "tpot" && metric != "itl" && metric != "e2el") {
      return error(Code::invalid, "--percentile-metrics knows ttft, tpot, itl and e2el, not '{}'", metric);
    }
  }
  for (const std::string& text : arguments.texts("metric-percentiles")) {
    double percent = -1;
    auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), percent);
    if (failed != std::errc() || end != text.data() + text.size() || !(percent >= 0 && percent <= 100)) {
      return error(Code::invalid, "'{}' is no percentile: 0 to 100", text);
    }
    shown.percentiles.push_back(percent);
  }
  if (arguments.given("max-concurrency"))
    shown.max_concurrency = static_cast<int>(arguments.integer("max-concurrency"));
  return shown;
}

Result<ServePace> pace_of(const Arguments& arguments) {
  ServePace pace;
  TRY(pace.rate, rate_of(arguments.text("request-rate")));
  pace.burstiness = arguments.number("burstiness");
  pace.seed = static_cast<uint64_t>(arguments.integer("seed"));
  std::string ramp = arguments.text("ramp-up-strategy");
  if (ramp.empty()) return pace;
  pace.ramp = ramp == "linear" ? RampUp::linear : RampUp::exponential;
  pace.ramp_from = arguments.number("ramp-up-start-rps");
  pace.ramp_to = arguments.number("ramp-up-end-rps");
  if (pace.rate) return error(Code::invalid, "--ramp-up-strategy sets the rate; leave --request-rate out");
  if (!(pace.ramp_from > 0 && pace.ramp_to >= pace.ramp_from)) {
    return error(Code::invalid, "a ramp needs 0 < --ramp-up-start-rps <= --ramp-up-end-rps, not {} and {}",
                 pace.ramp_from, pace.ramp_to);
  }
  return pace;
}

Result<Plan> plan_of(const Arguments& arguments) {
  Plan plan;
  for (const std::string& goal : arguments.texts("goodput")) TRY_VOID(add_goal(plan.goals, goal));
  for (const std::string& word : arguments.operands("KEY:MS")) TRY_VOID(add_goal(plan.goals, word));
  for (const std::string& item : arguments.texts("metadata")) TRY_VOID(key_value(item));
  TRY(plan.shown, shown_of(arguments));
  plan.shown.goodput = plan.goals.any();
  TRY(plan.pace, pace_of(arguments));
  TRY(plan.extra, extra_of(arguments));
  TRY(plan.target, target_of(arguments));
  plan.model = arguments.text("served-model-name");
  int vocab = static_cast<int>(arguments.integer("vocab"));
  if (plan.model.empty() || vocab == 0) {
    auto served = ask_models(plan.target);
    if (!served.ok() && plan.model.empty()) return served.error();
    if (served.ok() && plan.model.empty()) plan.model = served->model;
    if (served.ok() && vocab == 0) vocab = served->vocab;
  }
  plan.vocab = std::max(2, vocab > 0 ? vocab : 1000);
  plan.seed = static_cast<uint64_t>(arguments.integer("seed"));
  TRY(plan.arrivals, arrivals_of(arguments, plan.vocab, plan.seed));
  plan.own_times = arguments.text("dataset-name") == "timed_trace" && !plan.pace.rate;
  plan.run.chat = arguments.text("backend") == "openai-chat";
  plan.run.endpoint = arguments.text("endpoint");
  if (plan.run.endpoint.empty()) plan.run.endpoint = plan.run.chat ? "/v1/chat/completions" : "/v1/completions";
  plan.run.max_concurrency = plan.shown.max_concurrency.value_or(0);
  plan.run.keep_text = arguments.toggle("save-detailed");
  return plan;
}

std::string body_of(const Plan& plan, const Arrival& arrival, bool words) {
  JsonObject body = {{"model", plan.model}};
  if (plan.run.chat) {
    body["messages"] = JsonArray{JsonObject{{"role", "user"}, {"content", words_of(arrival.prompt)}}};
  } else if (words) {
    body["prompt"] = words_of(arrival.prompt);
  } else {
    body["prompt"] = JsonArray(arrival.prompt.begin(), arrival.prompt.end());
  }
  body[plan.run.chat ? "max_completion_tokens" : "max_tokens"] = arrival.output;
  body["stream"] = true;
  body["stream_options"] = JsonObject{{"include_usage", true}};
  for (const auto& [key, value] : plan.extra) body[key] = value;
  return to_text(body);
}

struct Measured {
  ServeReport report;
  std::vector<ServeRecord> records;
};

Result<Measured> measure(const Arguments& arguments, const Plan& plan, const ServePace& how, std::string label) {
  std::vector<Arrival> arrivals = plan.arrivals;
  if (!plan.own_times) pace(arrivals, how);
  std::vector<ServeRequest> requests;
  bool words = arguments.text("prompt-format") == "text";
  for (const Arrival& arrival : arrivals) requests.push_back({arrival.time, body_of(plan, arrival, words)});
  Progress progress(arguments.terminal(), std::move(label), requests.size(), Progress::Unit::count);
  ServeRun options = plan.run;
  options.progress = [&](size_t ended) {
    progress.update(ended);
    return !Interruptible::interrupted();
  };
  TRY(ServeOutcome outcome, run_load(plan.target, requests, options));
  for (size_t i = 0; i < outcome.records.size(); ++i) {
    ServeRecord& record = outcome.records[i];
    if (record.prompt_tokens == 0) record.prompt_tokens = static_cast<int64_t>(arrivals[i].prompt.size());
  }
  ServeReport report = report_serve(outcome.records, outcome.seconds, plan.goals, plan.shown.percentiles);
  return Measured{std::move(report), std::move(outcome.records)};
}

void tell_failures(const Terminal& terminal, const std::vector<ServeRecord>& records) {
  int told = 0;
  for (const ServeRecord& record : records) {
    if (record.ok || told++ >= 10) continue;
    terminal.warn("a request failed: {}", printable(record.error));
  }
  if (told > 10) terminal.warn("and {} more", told - 10);
}

// With prompts that are not measured, for a server may remember them.
Result<void> warm_up(const Arguments& arguments, const Plan& plan) {
  auto count = static_cast<size_t>(arguments.integer("num-warmups"));
  if (count == 0) return {};
  TRY(auto others, arrivals_of(arguments, plan.vocab, ~plan.seed));
  std::vector<ServeRequest> requests;
  bool words = arguments.text("prompt-format") == "text";
  for (size_t i = 0; i < count; ++i) requests.push_back({0, body_of(plan, others[i % others.size()], words)});
  TRY(ServeOutcome outcome, run_load(plan.target, requests, plan.run));
  for (const ServeRecord& record : outcome.records) {
    if (!record.ok) return error(Code::io, "a warm-up request failed: {}", record.error);
  }
  return {};
}

std::string rate_text(const std::optional<double>& rate) {
  if (!rate) return "inf";
  std::string text = fmt::format("{:g}", *rate);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

JsonObject setup_json(const Arguments& arguments, const Plan& plan, const ServePace& how, const std::string& date) {
  std::string label = arguments.text("label");
  JsonObject json = {{"date", date},
                     {"endpoint_type", arguments.text("backend")},
                     {"backend", arguments.text("backend")},
                     {"label", label.empty() ? Json(nullptr) : Json(label)},
                     {"model_id", plan.model},
                     {"tokenizer_id", plan.model},
                     {"num_prompts", static_cast<int64_t>(plan.arrivals.size())}};
  for (const std::string& item : arguments.texts("metadata")) {
    if (auto pair = key_value(item); pair.ok()) json[pair->first] = pair->second;
  }
  json["request_rate"] = how.rate ? Json(*how.rate) : Json("inf");
  json["burstiness"] = how.burstiness;
  json["max_concurrency"] = plan.shown.max_concurrency ? Json(*plan.shown.max_concurrency) : Json(nullptr);
  if (how.ramp != RampUp::none) {
    json["ramp_up_strategy"] = how.ramp == RampUp::linear ? "linear" : "exponential";
    json["ramp_up_start_rps"] = how.ramp_from;
    json["ramp_up_end_rps"] = how.ramp_to;
  }
  return json;
}

Result<void> save(const Arguments& arguments, const Plan& plan, const ServePace& how, const JsonObject& json,
                  const std::string& date) {
  std::string label = arguments.text("label").empty() ? arguments.text("backend") : arguments.text("label");
  std::string model = plan.model.substr(plan.model.rfind('/') + 1);
  std::string limit = plan.shown.max_concurrency ? fmt::format("-concurrency{}", *plan.shown.max_concurrency) : "";
  std::filesystem::path path = fmt::format("{}-{}qps{}-{}-{}.json", label, rate_text(how.rate), limit, model, date);
  if (auto name = arguments.maybe_text("result-filename"); name.has_value()) path = *name;
  if (auto folder = arguments.maybe_text("result-dir"); folder.has_value()) {
    std::error_code failed;
    std::filesystem::create_directories(*folder, failed);
    path = std::filesystem::path(*folder) / path;
  }
  bool append = arguments.toggle("append-result");
  std::error_code none;
  bool more = append && std::filesystem::file_size(path, none) > 0 && !none;
  std::ofstream file(path, append ? std::ios::app : std::ios::trunc);
  file << (more ? "\n" : "") << to_text(json);
  file.close();
  if (!file) return error(Code::io, "{} cannot be written", path.string());
  arguments.terminal().note("saved to {}", printable(path.string()));
  return {};
}

std::string date_text() {
  std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::localtime_r(&now, &parts);
  std::array<char, 32> text = {};
  std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &parts);
  return text.data();
}

// The highest rate that keeps the goals, and what was measured there.
Result<std::optional<std::pair<ServePace, Measured>>> sweep(const Arguments& arguments, const Plan& plan) {
  double wanted = arguments.number("sweep-share");
  std::map<double, Measured> seen;
  TRY(double best, highest_rate(plan.pace.rate.value_or(1), wanted, 0.1, [&](double rate) -> Result<double> {
        ServePace how = plan.pace;
        how.rate = rate;
        // Other prompts at each rate, for a server may remember those of the last.
        Plan turn = plan;
        TRY(turn.arrivals, arrivals_of(arguments, plan.vocab, plan.seed + seen.size()));
        TRY(Measured measured, measure(arguments, turn, how, fmt::format("{:.3g} req/s", rate)));
        double share = measured.report.attainment();
        arguments.terminal().note(
            "{:8.3f} req/s: {:5.1f} % of {} requests met the goals, {:.1f} tok/s, TTFT p50 {:.0f} ms", rate,
            100 * share, measured.report.completed + measured.report.failed, measured.report.output_per_second,
            measured.report.ttft.median);
        seen.insert_or_assign(rate, std::move(measured));
        return share;
      }));
  if (best <= 0) return std::optional<std::pair<ServePace, Measured>>();
  ServePace how = plan.pace;
  how.rate = best;
  return std::optional(std::pair(how, std::move(seen.at(best))));
}

Result<int> show(const Arguments& arguments, Plan& plan, const ServePace& how, const Measured& measured) {
  const Terminal& terminal = arguments.terminal();
  tell_failures(terminal, measured.records);
  plan.shown.rate = plan.own_times ? std::nullopt : how.rate;
  std::string date = date_text();
  JsonObject json = setup_json(arguments, plan, how, date);
  const auto* records = arguments.toggle("save-detailed") ? &measured.records : nullptr;
  for (auto& [key, value] : serve_json(measured.report, plan.shown, records)) json[key] = value;
  if (arguments.toggle("json")) {
    terminal.print("{}\n", to_pretty_text(json));
  } else {
    terminal.write_out(serve_text(measured.report, plan.shown));
  }
  if (arguments.toggle("save-result") || arguments.toggle("append-result")) {
    TRY_VOID(save(arguments, plan, how, json, date));
  }
  return measured.report.completed > 0 ? kExitOk : kExitFailure;
}

Result<int> measure_and_show(const Arguments& arguments) {
  TRY(Plan plan, plan_of(arguments));
  TRY_VOID(warm_up(arguments, plan));
  if (!arguments.toggle("sweep")) {
    TRY(Measured measured, measure(arguments, plan, plan.pace, "requests"));
    return show(arguments, plan, plan.pace, measured);
  }
  TRY(auto best, sweep(arguments, plan));
  if (!best) {
    return error(Code::overloaded, "no rate down to {:g} req/s meets the goals for {:g} % of the requests",
                 plan.pace.rate.value_or(1) / 64, 100 * arguments.number("sweep-share"));
  }
  arguments.terminal().note("highest rate that keeps the goals: {:.3f} req/s", *best->first.rate);
  return show(arguments, plan, best->first, best->second);
}

Result<int> run_bench_serve(const Arguments& arguments) {
  bool trace = arguments.text("dataset-name") == "timed_trace";
  if (trace != arguments.given("dataset-path")) {
    return wrong_use(arguments, trace ? "timed_trace needs --dataset-path" : "--dataset-path goes with timed_trace");
  }
  bool goals = arguments.given("goodput");
  if (arguments.toggle("sweep") && !goals) return wrong_use(arguments, "--sweep needs --goodput to know what is good");
  if (!goals && !arguments.operands("KEY:MS").empty()) {
    return wrong_use(arguments,
                     fmt::format("what is '{}'? Goals come after --goodput", arguments.operands("KEY:MS")[0]));
  }
  Interruptible interruptible;
  auto done = measure_and_show(arguments);
  if (!done.ok() && Interruptible::interrupted()) return interrupted_error();
  return done;
}

// Tables of flags, by what they are about. None has another spelling.
Flag whole(std::string_view name, std::string_view otherwise, double least, double most, std::string_view help) {
  return integer_flag(name, "", otherwise, least, most, help);
}
Flag number(std::string_view name, std::string_view otherwise, double least, double most, std::string_view help) {
  return number_flag(name, "", otherwise, least, most, help);
}
Flag list(std::string_view name, std::string_view value, std::string_view otherwise, Many many, std::string_view help) {
  Flag flag = text_flag(name, value, otherwise, "", help);
  flag.many = many;
  return flag;
}

std::vector<Flag> server_flags() {
  return {text_flag("base-url", "URL", "", "", "the server, http://HOST:PORT"),
          text_flag("host", "HOST", "127.0.0.1", "", "where no --base-url is given"),
          whole("port", "8080", 1, 65535, "where no --base-url is given"),
          text_flag("backend", "NAME", "openai", "openai|vllm|openai-chat", "completions, or chat completions"),
          text_flag("endpoint", "PATH", "", "", "instead of the backend's usual one"),
          {.name = "served-model-name",
           .alias = "--model",
           .kind = Kind::text,
           .value = "NAME",
           .help = "as the API knows it; the server's first if absent"},
          list("header", "KEY=VALUE", "", Many::repeated, "sent with each request; OPENAI_API_KEY is sent as well")};
}

std::vector<Flag> workload_flags() {
  return {text_flag("dataset-name", "NAME", "random", "random|prefix_repetition|timed_trace", "what is asked"),
          path_flag("dataset-path", "FILE", "a trace (Azure CSV, Mooncake JSON lines)"),
          whole("num-prompts", "1000", 1, 1e7, "requests in all"),
          whole("input-len", "", 1, 1 << 24, "prompt tokens, for any workload"),
          whole("output-len", "", 1, 1 << 24, "tokens to generate, for any workload"),
          whole("random-input-len", "1024", 1, 1 << 24, "prompt tokens"),
          whole("random-output-len", "128", 1, 1 << 24, "tokens to generate"),
          whole("random-prefix-len", "0", 0, 1 << 24, "tokens all prompts begin with, besides"),
          number("random-range-ratio", "0", 0, 0.999, "lengths vary by this share"),
          whole("prefix-repetition-prefix-len", "256", 0, 1 << 24, "tokens shared by a group"),
          whole("prefix-repetition-suffix-len", "256", 1, 1 << 24, "tokens of one's own"),
          whole("prefix-repetition-num-prefixes", "10", 1, 1 << 24, "groups"),
          whole("prefix-repetition-output-len", "128", 1, 1 << 24, "tokens to generate"),
          number("speed", "1", 1e-6, 1e6, "a trace's requests come so many times as fast"),
          whole("max-model-len", "2048", 4, 1 << 24, "a trace's lengths shrink to fit this context"),
          text_flag("prompt-format", "FORMAT", "tokens", "tokens|text", "send token ids, or words"),
          whole("vocab", "0", 0, 1 << 30, "draw token ids below this; 0: ask the server"),
          whole("seed", "0", 0, 9e15, "of prompts and arrivals")};
}

std::vector<Flag> load_flags() {
  return {text_flag("request-rate", "X", "inf", "", "requests a second; inf: all at once"),
          number("burstiness", "1", 1e-3, 1e9, "1: Poisson; below: in bursts; above: more even"),
          whole("max-concurrency", "", 1, 1e6, "requests open at a time"),
          text_flag("ramp-up-strategy", "NAME", "", "linear|exponential", "raise the rate on the way"),
          number("ramp-up-start-rps", "0", 0, 1e6, "where the ramp begins"),
          number("ramp-up-end-rps", "0", 0, 1e6, "where the ramp ends"),
          whole("num-warmups", "0", 0, 1e6, "requests before the measured ones"),
          {.name = "ignore-eos", .otherwise = "true", .help = "generate to the full length"},
          number("temperature", "", 0, 100, "the server's if absent, like those below"),
          number("top-p", "", 0, 1, "nucleus sampling"),
          whole("top-k", "", -1, 1 << 24, "among so many tokens"),
          number("min-p", "", 0, 1, "least share of the best"),
          number("frequency-penalty", "", -10, 10, "for tokens by their count"),
          number("presence-penalty", "", -10, 10, "for tokens already there"),
          number("repetition-penalty", "", 0, 10, "as a factor"),
          whole("logprobs", "", 0, 100, "ask for so many alternatives"),
          text_flag("extra-body", "JSON", "", "", "more fields of each request")};
}

std::vector<Flag> result_flags() {
  return {list("percentile-metrics", "NAMES", "ttft,tpot,itl", Many::commas, "of ttft, tpot, itl, e2el"),
          list("metric-percentiles", "LIST", "99", Many::commas, "percentiles to show"),
          list("goodput", "KEY:MS", "", Many::repeated, "goals, as in --goodput ttft:500 tpot:50"),
          {.name = "sweep", .help = "find the highest rate that keeps the goals, from --request-rate (or 1) on"},
          number("sweep-share", "0.9", 0, 1, "requests that must meet them"),
          {.name = "save-result", .help = "write a JSON file"},
          {.name = "append-result", .help = "add to the file instead of replacing it"},
          {.name = "save-detailed", .help = "with the times of each request"},
          path_flag("result-dir", "FOLDER", "where the file goes"),
          path_flag("result-filename", "FILE", "its name"),
          text_flag("label", "TEXT", "", "", "what its name begins with"),
          list("metadata", "KEY=VALUE", "", Many::repeated, "written into the file"),
          {.name = "json", .help = "print the JSON"}};
}

}  // namespace

Verb bench_serve_verb() {
  return {
      .name = "bench serve",
      .summary = "load any OpenAI server and measure it",
      .group = "Measure and check",
      .operands = {{.name = "KEY:MS", .required = false, .many = true, .help = "more goals of --goodput"}},
      .flags = joined({server_flags(), workload_flags(), load_flags(), result_flags()}),
      .examples = {{"bench serve --base-url http://127.0.0.1:8080 --num-prompts 64 --max-concurrency 16",
                    "sixteen clients, one request after another"},
                   {"bench serve --request-rate 4 --goodput ttft:500 tpot:50 --percentile-metrics ttft,tpot,e2el",
                    "requests as they come, and how many were served well"},
                   {"bench serve --sweep --goodput ttft:500 tpot:50 --num-prompts 100",
                    "the most this server can take"},
                   {"bench serve --dataset-name timed_trace --dataset-path azure.csv --speed 10 --num-prompts 200",
                    "a recorded load, ten times as fast"}},
      .notes =
          "Flags, the result and the JSON keys are those of vLLM's `bench serve`. A request's times count from when "
          "it is sent; a time between tokens is one between pieces of the stream. Servers that take no token ids "
          "want --prompt-format text.",
      .run = run_bench_serve};
}

}  // namespace millrace::apps
