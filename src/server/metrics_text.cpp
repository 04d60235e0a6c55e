#include "server/metrics_text.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <span>
#include <vector>

namespace millrace {
namespace {

// Writes families of one metric each, with its help and type before its samples.
class Page {
 public:
  explicit Page(std::string labels) : labels_(std::move(labels)) {}

  void counter(std::string_view name, std::string_view help, double value) {
    head(name, help, "counter");
    line(name, labels_, value);
  }
  void gauge(std::string_view name, std::string_view help, double value) {
    head(name, help, "gauge");
    line(name, labels_, value);
  }
  // A counter told apart by one more label.
  void counters(std::string_view name, std::string_view help, std::string_view label,
                std::span<const std::pair<std::string_view, int64_t>> values) {
    head(name, help, "counter");
    for (const auto& [value, count] : values) {
      std::string all = labels_;
      if (!all.empty()) all += ',';
      line(name, all + fmt::format("{}=\"{}\"", label, value), static_cast<double>(count));
    }
  }
  void histogram(std::string_view name, std::string_view help, const Histogram& values, std::span<const double> edges) {
    head(name, help, "histogram");
    const std::string comma = labels_.empty() ? "" : ",";
    for (double edge : edges) {
      line(fmt::format("{}_bucket", name), fmt::format("{}{}le=\"{}\"", labels_, comma, edge),
           static_cast<double>(values.at_most(edge)));
    }
    line(fmt::format("{}_bucket", name), fmt::format("{}{}le=\"+Inf\"", labels_, comma),
         static_cast<double>(values.count()));
    line(fmt::format("{}_sum", name), labels_, values.sum());
    line(fmt::format("{}_count", name), labels_, static_cast<double>(values.count()));
  }
  std::string take() { return std::move(text_); }

 private:
  void head(std::string_view name, std::string_view help, std::string_view type) {
    fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  void line(std::string_view name, std::string_view labels, double value) {
    fmt::format_to(std::back_inserter(text_), "{}", name);
    if (!labels.empty()) fmt::format_to(std::back_inserter(text_), "{{{}}}", labels);
    fmt::format_to(std::back_inserter(text_), " {}\n", value);
  }
  std::string labels_, text_;
};

constexpr double kLatencies[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                 0.75,  1,      2.5,   5,    7.5,   10,   30,  60,   120};
constexpr double kShort[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075,
                             0.1,    0.15,  0.2,    0.3,   0.5,  1,     2.5,  5};
constexpr double kCounts[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};

// A label's value may hold anything but needs these escaped.
std::string label_text(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

// What vLLM has a name for and means the same by: dashboards and autoscalers made for it find it here.
void shared_names(Page& page, const EngineSnapshot& snapshot) {
  const Metrics& m = snapshot.metrics;
  page.gauge("vllm:num_requests_running", "Sequences that run now.", m.running);
  page.gauge("vllm:num_requests_waiting", "Sequences that wait now.", m.waiting);
  page.gauge("vllm:kv_cache_usage_perc", "Pages held by running sequences, of all (0 to 1).",
             snapshot.pages > 0 ? static_cast<double>(m.pages_used - m.pages_cached) / snapshot.pages : 0);
  // Names of older versions, which some routers still read.
  page.gauge("vllm:gpu_cache_usage_perc", "As vllm:kv_cache_usage_perc.",
             snapshot.pages > 0 ? static_cast<double>(m.pages_used - m.pages_cached) / snapshot.pages : 0);
  page.counter("vllm:gpu_prefix_cache_queries_total", "As vllm:prefix_cache_queries_total.",
               static_cast<double>(m.prefix_asked_tokens));
  page.counter("vllm:gpu_prefix_cache_hits_total", "As vllm:prefix_cache_hits_total.",
               static_cast<double>(m.prefix_found_tokens));
  page.counter("vllm:prompt_tokens_total", "Prompt tokens of answers that began.",
               static_cast<double>(m.prompt_tokens));
  page.counter("vllm:generation_tokens_total", "Tokens generated.", static_cast<double>(m.generated_tokens));
  page.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
               static_cast<double>(m.prefix_asked_tokens));
  page.counter("vllm:prefix_cache_hits_total", "Prompt tokens found there.",
               static_cast<double>(m.prefix_found_tokens));
  page.counter("vllm:num_preemptions_total", "Sequences sent back to wait for want of room.",
               static_cast<double>(m.preemptions));
  const std::pair<std::string_view, int64_t> ends[] = {
      {"stop", m.stopped}, {"length", m.at_length}, {"abort", m.cancelled}, {"error", m.failed}};
  page.counters("vllm:request_success_total", "Requests by how they ended.", "finished_reason", ends);
  page.histogram("vllm:time_to_first_token_seconds", "From arrival to the first token.", m.first_token, kLatencies);
  page.histogram("vllm:inter_token_latency_seconds", "From token to token.", m.between_tokens, kShort);
  page.histogram("vllm:request_time_per_output_token_seconds", "The same, as the mean of each request.", m.next_token,
                 kShort);
  page.histogram("vllm:request_queue_time_seconds", "From arrival to the first step.", m.queue, kLatencies);
  page.histogram("vllm:e2e_request_latency_seconds", "From arrival to the last token.", m.end_to_end, kLatencies);
  page.histogram("vllm:iteration_tokens_total", "Tokens computed in a step.", m.step_tokens, kCounts);
}

// Of a model that fills masks.
void fill_names(Page& page, const Metrics& m) {
  page.counter("millrace_diffusion_passes_total", "Passes over answers of a model that fills masks.",
               static_cast<double>(m.fill_passes));
  page.counter("millrace_diffusion_tokens_total", "Positions that those passes filled.",
               static_cast<double>(m.filled_tokens));
}

// Of guesses, under vLLM's names too.
void draft_names(Page& page, const Metrics& m) {
  page.counter("vllm:spec_decode_num_drafts_total", "Windows of guesses that were checked.",
               static_cast<double>(m.draft_windows));
  page.counter("vllm:spec_decode_num_draft_tokens_total", "Tokens guessed.", static_cast<double>(m.drafted_tokens));
  page.counter("vllm:spec_decode_num_accepted_tokens_total", "Guesses that were kept.",
               static_cast<double>(m.accepted_drafts));
  std::vector<std::string> depths;
  for (size_t depth = 0; depth < m.drafted_at.size() && m.drafted_at[depth] > 0; ++depth)
    depths.push_back(fmt::format("{}", depth));
  std::vector<std::pair<std::string_view, int64_t>> kept, made;
  for (size_t depth = 0; depth < depths.size(); ++depth) {
    kept.emplace_back(depths[depth], m.accepted_at[depth]);
    made.emplace_back(depths[depth], m.drafted_at[depth]);
  }
  page.counters("vllm:spec_decode_num_accepted_tokens_per_pos_total", "The same by how far ahead they were.",
                "position", kept);
  page.counters("millrace_draft_tokens_per_pos_total", "Tokens guessed, by how far ahead.", "position", made);
  page.counter("millrace_draft_seconds_total", "Time spent guessing.", m.draft_seconds);
}

// Tokens found, by where they were.
void prefix_names(Page& page, const Metrics& m) {
  const int64_t near = m.prefix_found_tokens - m.prefix_second_tokens - m.prefix_store_tokens;
  const std::pair<std::string_view, int64_t> tiers[] = {
      {"memory", std::max<int64_t>(0, near)}, {"host", m.prefix_second_tokens}, {"store", m.prefix_store_tokens}};
  page.counters("millrace_prefix_found_tokens_total",
                "Prompt tokens found, by where: the cache, the host's memory (--swap), a page store.", "tier", tiers);
}

// Of pages shared with other replicas.
void tier_names(Page& page, const TierCounters& tier) {
  if (tier.asked + tier.skipped + tier.stored + tier.dropped + tier.failed == 0) return;
  const std::pair<std::string_view, int64_t> asked[] = {
      {"asked", tier.asked}, {"skipped", tier.skipped}, {"late", tier.late}, {"failed", tier.failed}};
  page.counters("millrace_page_store_lookups_total",
                "Look-ups in the store of shared pages: made, not made because computing was faster, late, failed.",
                "what", asked);
  const std::pair<std::string_view, int64_t> nodes[] = {{"found", tier.found},
                                                        {"missed", tier.missed},
                                                        {"refused", tier.refused},
                                                        {"stored", tier.stored},
                                                        {"dropped", tier.dropped}};
  page.counters("millrace_page_store_nodes_total", "Stretches of tokens by what became of them there.", "what", nodes);
}

void own_names(Page& page, const EngineSnapshot& snapshot) {
  const Metrics& m = snapshot.metrics;
  page.gauge("millrace_kv_cache_pages", "Pages there are.", snapshot.pages);
  page.gauge("millrace_kv_cache_pages_used", "Pages that hold something.", m.pages_used);
  page.gauge("millrace_kv_cache_pages_cached", "Pages kept for whoever begins alike.", m.pages_cached);
  page.gauge("millrace_seconds_since_progress", "Since the engine last finished a step or had nothing to do.",
             snapshot.now - snapshot.last_progress);
  page.counter("millrace_engine_restarts_total", "Engine processes that died and were replaced.", snapshot.restarts);
  page.counter("millrace_requests_refused_total", "Requests the queue had no room for, or that could not be on time.",
               static_cast<double>(m.refused));
  page.counter("millrace_bound_answers_total", "Answers that had to be of a form.",
               static_cast<double>(m.bound_answers));
  page.counter("millrace_bound_tokens_total", "Tokens chosen for those, each under a mask.",
               static_cast<double>(m.bound_tokens));
  prefix_names(page, m);
  page.counter("millrace_steps_total", "Steps computed.", static_cast<double>(m.steps));
  const std::pair<std::string_view, int64_t> rows[] = {
      {"part", m.shortlist_rows}, {"whole", m.whole_rows}, {"unsettled", m.unsettled_rows}};
  page.counters(
      "millrace_sampled_rows_total",
      "Rows of logits a GPU brought to sample from: in part, whole, whole because the part did not settle it.",
      "brought", rows);
  page.histogram("millrace_step_sequences", "Sequences in a step.", m.step_sequences, kCounts);
  page.histogram("millrace_step_seconds", "Length of a step.", m.step_seconds, kShort);
}

}  // namespace

std::string share_text(const ServedModel* model, const EngineSnapshot& share) {
  const Metrics& m = share.metrics;
  Page page(model == nullptr ? "" : fmt::format("model_name=\"{}\"", label_text(model->name)));
  page.gauge("vllm:num_requests_running", "Your requests that have begun.", m.running);
  page.gauge("vllm:num_requests_waiting", "Your requests that wait.", m.waiting);
  page.counter("vllm:prompt_tokens_total", "Prompt tokens of your requests that ended.",
               static_cast<double>(m.tokens_in));
  page.counter("vllm:generation_tokens_total", "Tokens generated for you.", static_cast<double>(m.generated_tokens));
  page.counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.",
               static_cast<double>(m.cached_tokens));
  page.counter("millrace_requests_refused_total", "Your requests that came too soon.", static_cast<double>(m.refused));
  const std::pair<std::string_view, int64_t> ends[] = {
      {"done", m.finished}, {"abort", m.cancelled}, {"error", m.failed}};
  page.counters("vllm:request_success_total", "Your requests by how they ended.", "finished_reason", ends);
  page.histogram("vllm:time_to_first_token_seconds", "From arrival to the first token.", m.first_token, kLatencies);
  page.histogram("vllm:inter_token_latency_seconds", "From token to token.", m.between_tokens, kShort);
  page.histogram("vllm:e2e_request_latency_seconds", "From arrival to the last token.", m.end_to_end, kLatencies);
  return page.take();
}

std::string model_metrics_text(const ServedModel& model) {
  const std::string name = fmt::format("model_name=\"{}\"", label_text(model.name));
  Page page(name);
  const EngineSnapshot snapshot = model.engine ? model.engine->snapshot() : EngineSnapshot();
  shared_names(page, snapshot);
  own_names(page, snapshot);
  tier_names(page, snapshot.tier);
  const EngineFacts facts = model.engine ? model.engine->facts() : EngineFacts();
  if (facts.limits.max_drafts > 0) draft_names(page, snapshot.metrics);
  if (snapshot.metrics.fill_passes > 0) fill_names(page, snapshot.metrics);
  std::string text = page.take();
  Page named(fmt::format("{},fingerprint=\"{}\"", name, model.fingerprint));
  named.gauge("millrace_model_info", "Always 1; the labels say what answers.", 1);
  text += named.take();
  Page cache(fmt::format("{},block_size=\"{}\",num_gpu_blocks=\"{}\"", name, facts.page_tokens, facts.pages));
  cache.gauge("vllm:cache_config_info", "Always 1; the labels say how the cache is cut.", 1);
  return text + cache.take();
}

std::string server_metrics_text(const ServiceCounters& counters, int open) {
  Page page("");
  page.counter("millrace_http_requests_total", "Requests read.", static_cast<double>(counters.requests.load()));
  page.counter("millrace_http_disconnects_total", "Clients that left before their answer.",
               static_cast<double>(counters.disconnects.load()));
  page.counter("millrace_http_resumed_total", "Streams gone on with by their Last-Event-ID.",
               static_cast<double>(counters.resumed.load()));
  page.counter("millrace_http_slow_clients_total", "Clients cut off because they did not read.",
               static_cast<double>(counters.slow_clients.load()));
  page.gauge("millrace_http_connections", "Connections open.", static_cast<double>(counters.connections.load()));
  page.gauge("millrace_http_generations", "Requests for answers that are open.", open);
  return page.take();
}

std::string joined_metrics(std::span<const std::string> pages) {
  if (pages.size() == 1) return pages.front();
  std::vector<std::string> order;
  std::map<std::string, std::string> families;  // by heading
  for (const std::string& page : pages) {
    std::string heading;
    for (size_t at = 0; at < page.size();) {
      const size_t end = std::min(page.find('\n', at), page.size() - 1) + 1;
      const std::string_view line = std::string_view(page).substr(at, end - at);
      at = end;
      if (line.starts_with("# HELP ")) {
        heading = line;
      } else if (line.starts_with("# TYPE ")) {
        heading += line;
        if (families.try_emplace(heading).second) order.push_back(heading);
      } else {
        families[heading] += line;
      }
    }
  }
  std::string text;
  for (const std::string& heading : order) text += heading + families[heading];
  return text;
}

}  // namespace millrace
