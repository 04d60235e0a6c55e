// How right and how fast masks are on a file of schemas with instances: every instance is written as text, cut into the
// model's tokens, and led through the masks token by token. The other way round, answers that chance writes under the
// masks can be kept, for another program to judge.
#include <time.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cli/flags.h"
#include "apps/cli/input.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/text/open_tokenizer.h"
#include "base/json.h"
#include "grammar/grammar.h"
#include "grammar/vocabulary.h"
#include "grammar/written.h"
#include "text/tokenizer.h"

namespace millrace::apps {
namespace {

// Microseconds of this thread's own time: what else the machine does is not counted.
double now() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

std::shared_ptr<const GrammarVocabulary> vocabulary_of(const Tokenizer& tokenizer) {
  std::vector<std::string> bytes(static_cast<size_t>(tokenizer.size()));
  for (Token token = 0; token < tokenizer.size(); ++token) {
    if (!tokenizer.is_special(token)) bytes[static_cast<size_t>(token)] = tokenizer.token_bytes(token);
  }
  return std::make_shared<GrammarVocabulary>(std::move(bytes),
                                             std::vector<Token>(tokenizer.ends().begin(), tokenizer.ends().end()));
}

struct Totals {
  int64_t schemas = 0, compiled = 0, refused = 0, passed = 0, wrong_accepts = 0, wrong_rejects = 0, given_up = 0,
          tokens = 0;
  std::vector<double> masks, compiling;  // microseconds
  std::map<std::string, int64_t> reasons;
  // What to look at: the slowest mask and the compiling of each schema, and what of it went wrong.
  struct Line {
    std::string name;
    double mask = 0, compile = 0;
    int64_t masks = 0, wrong = 0;
    std::string at;  // the text before the slowest mask
  };
  std::vector<Line> lines;
};

// Answers that chance writes.
struct Chance {
  int64_t answers = 0;  // of each schema
  int64_t most_tokens = 0;
  uint64_t seed = 0;
  std::ofstream out;
};

class GrammarBench {
 public:
  GrammarBench(const Tokenizer& tokenizer, Chance& chance)
      : tokenizer_(tokenizer), vocabulary_(vocabulary_of(tokenizer)), chance_(chance) {
    for (Token token = 0; token < vocabulary_->size(); ++token) {
      const std::string& bytes = vocabulary_->bytes(token);
      if (!bytes.empty()) by_bytes_.try_emplace(bytes, token);
      longest_ = std::max(longest_, bytes.size());
    }
  }

  Result<void> line(const Json& json, Totals& totals) {
    const Json* schema = find(json, "schema");
    const Json* tests = find(json, "tests");
    if (schema == nullptr || tests == nullptr || !tests->is_array()) {
      return error(Code::invalid, "a line needs schema and tests, [[instance, valid], ...]");
    }
    ++totals.schemas;
    const double begin = now();
    auto grammar = Grammar::compile({.kind = GrammarKind::json_schema, .text = to_text(*schema)}, vocabulary_);
    totals.compiling.push_back(now() - begin);
    const Json* name = find(json, "name");
    totals.lines.push_back({.name = name != nullptr && name->is_string() ? std::string(name->get_string())
                                                                         : fmt::format("schema {}", totals.schemas),
                            .compile = totals.compiling.back(),
                            .at = {}});
    if (!grammar.ok()) {
      ++totals.refused;
      const std::string& why = grammar.error().message;
      ++totals.reasons[why.starts_with('/') ? why.substr(std::min(why.find(": ") + 2, why.size())) : why];
      return {};
    }
    ++totals.compiled;
    bool good = true;
    for (const Json& test : tests->get_array()) {
      if (!test.is_array() || test.get_array().size() != 2 || !test.get_array()[1].is_bool()) {
        return error(Code::invalid, "a test is [instance, true or false]");
      }
      const std::string text = grammar::written(test.get_array()[0]);
      const bool valid = test.get_array()[1].get_bool();
      bool gave_up = false;
      const bool taken = lead(**grammar, text, totals, gave_up);
      if (gave_up) ++totals.given_up;
      if (taken && !valid) ++totals.wrong_accepts;
      if (!taken && valid && !gave_up) ++totals.wrong_rejects;
      good &= taken == valid && !gave_up;
      totals.lines.back().wrong += taken == valid && !gave_up ? 0 : 1;
    }
    if (good) ++totals.passed;
    for (int64_t i = 0; i < chance_.answers; ++i) TRY_VOID(write_answer(**grammar, *schema, totals.schemas, i));
    return {};
  }

 private:
  // Every token has a random logit; those that close something are likelier, so that answers end.
  Result<void> write_answer(Grammar& grammar, const Json& schema, int64_t number, int64_t answer) {
    std::seed_seq seeds = {chance_.seed, static_cast<uint64_t>(number), static_cast<uint64_t>(answer)};
    std::mt19937_64 random(seeds);
    Grammar::State state = grammar.start();
    std::string text;
    bool ended = false;
    for (int64_t i = 0; i < chance_.most_tokens && !ended; ++i) {
      const auto mask = grammar.allowed(state);
      if (!mask.ok()) break;  // too much work, which a server answers with an error
      Token best = -1;
      double most = 0;
      for (Token token = 0; token < vocabulary_->size(); ++token) {
        if (!(*mask)->has(token)) continue;
        const std::string& bytes = vocabulary_->bytes(token);
        const bool closes = bytes.empty() || bytes.find_first_of("\"}]") != std::string::npos;
        // The largest of random logits is a race: the shortest of exponential times.
        const double logit = -std::exponential_distribution<double>(closes ? 30.0 : 1.0)(random);
        if (best < 0 || logit > most) best = token, most = logit;
      }
      if (best < 0) return error(Code::internal, "schema {}: nothing is allowed after {}", number, text);
      ended = std::ranges::find(tokenizer_.ends(), best) != tokenizer_.ends().end();
      if (ended) break;
      text += vocabulary_->bytes(best);
      state = grammar.next(state, best);
    }
    chance_.out << to_text(JsonObject{{"schema", schema}, {"answer", ended ? text : ""}, {"ended", ended}}) << '\n';
    return {};
  }

  // The model's own tokens where they spell the text exactly, else the longest that fit.
  std::vector<Token> tokens_of(std::string_view text) const {
    const auto own = tokenizer_.encode(text);
    std::string spelled;
    for (Token token : own.ok() ? std::span<const Token>(*own) : std::span<const Token>())
      spelled += vocabulary_->bytes(token);
    if (own.ok() && spelled == text) return *own;
    std::vector<Token> tokens;
    while (!text.empty()) {
      size_t length = std::min(longest_, text.size());
      auto found = by_bytes_.find(std::string(text.substr(0, length)));
      while (found == by_bytes_.end() && length > 1) found = by_bytes_.find(std::string(text.substr(0, --length)));
      if (found == by_bytes_.end()) return {};
      tokens.push_back(found->second);
      text.remove_prefix(length);
    }
    return tokens;
  }

  // Gives up where a mask takes more work than is allowed: a server answers that with an error.
  bool lead(Grammar& grammar, std::string_view text, Totals& totals, bool& gave_up) const {
    Grammar::State state = grammar.start();
    const std::vector<Token> tokens = tokens_of(text);
    if (tokens.empty()) return false;
    Totals::Line& line = totals.lines.back();
    size_t at = 0;
    for (Token token : tokens) {
      const double begin = now();
      auto mask = grammar.allowed(state);
      totals.masks.push_back(now() - begin);
      ++line.masks;
      if (totals.masks.back() > line.mask) line.mask = totals.masks.back(), line.at = text.substr(0, at);
      at += vocabulary_->bytes(token).size();
      ++totals.tokens;
      gave_up = !mask.ok();
      if (gave_up || !(*mask)->has(token)) return false;
      state = grammar.next(state, token);
      gave_up = grammar.over();
      if (gave_up || state == Grammar::kRefused) return false;
    }
    return grammar.accepts(state);
  }

  const Tokenizer& tokenizer_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  Chance& chance_;
  std::map<std::string, Token, std::less<>> by_bytes_;
  size_t longest_ = 1;
};

double percentile(const std::vector<double>& sorted, double part) {
  if (sorted.empty()) return 0;
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(part * static_cast<double>(sorted.size())))];
}

JsonObject spread(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return {{"p50", percentile(times, 0.5)},
          {"p99", percentile(times, 0.99)},
          {"p999", percentile(times, 0.999)},
          {"worst", times.empty() ? 0 : times.back()}};
}

// The schemas with the slowest masks, and those that compiled slowest.
JsonArray slowest(std::vector<Totals::Line> lines, size_t count) {
  JsonArray out;
  const auto add = [&](const char* what, auto member) {
    std::ranges::sort(lines, std::ranges::greater{}, member);
    for (size_t i = 0; i < std::min(count, lines.size()); ++i) {
      const Totals::Line& line = lines[i];
      if (std::invoke(member, line) == 0) break;
      std::string tail = line.at.substr(line.at.size() - std::min<size_t>(line.at.size(), 60));
      std::ranges::replace_if(
          tail, [](char c) { return static_cast<uint8_t>(c) >= 0x80; }, '?');
      out.push_back(JsonObject{{"slowest", what},
                               {"name", line.name},
                               {"mask_us", line.mask},
                               {"compile_us", line.compile},
                               {"masks", line.masks},
                               {"wrong", line.wrong},
                               {"before", tail}});
    }
  };
  add("mask", &Totals::Line::mask);
  add("compile", &Totals::Line::compile);
  add("wrong", &Totals::Line::wrong);
  return out;
}

void print(const Terminal& terminal, const Totals& totals, int32_t vocab, bool json, size_t slow) {
  JsonArray reasons;
  for (const auto& [why, count] : totals.reasons) reasons.push_back(JsonObject{{"why", why}, {"schemas", count}});
  JsonObject out = {{"vocabulary", vocab},
                    {"schemas", totals.schemas},
                    {"compiled", totals.compiled},
                    {"refused", totals.refused},
                    {"passed", totals.passed},
                    {"wrong_accepts", totals.wrong_accepts},
                    {"wrong_rejects", totals.wrong_rejects},
                    {"given_up", totals.given_up},
                    {"tokens", totals.tokens},
                    {"mask_us", spread(totals.masks)},
                    {"compile_us", spread(totals.compiling)},
                    {"refusals", std::move(reasons)}};
  const JsonArray named = slowest(totals.lines, slow);
  if (slow > 0) out["slowest"] = named;
  if (json) return terminal.print("{}\n", to_pretty_text(out));
  terminal.print("{} schemas: {} compiled, {} refused, {} passed; {} wrong accepts, {} wrong rejects, {} given up\n",
                 totals.schemas, totals.compiled, totals.refused, totals.passed, totals.wrong_accepts,
                 totals.wrong_rejects, totals.given_up);
  for (const char* what : {"mask_us", "compile_us"}) {
    const JsonObject& times = out[what].get_object();
    terminal.print("{:10} p50 {:.1f}, p99 {:.1f}, p99.9 {:.1f}, worst {:.1f} us\n", what, times.at("p50").get_double(),
                   times.at("p99").get_double(), times.at("p999").get_double(), times.at("worst").to_number<double>());
  }
  for (const Json& line : named) terminal.print("{}\n", to_text(line));
}

Result<int> run_bench_grammar(const Arguments& arguments) {
  TRY(std::filesystem::path path, model_path(arguments));
  TRY(Tokenizer tokenizer, open_tokenizer(path));
  TRY(const std::string text, read_input(arguments.operand("FILE")));
  Chance chance = {.answers = arguments.given("answers") ? arguments.integer("each") : 0,
                   .most_tokens = arguments.integer("predict"),
                   .seed = static_cast<uint64_t>(arguments.integer("seed")),
                   .out = {}};
  if (chance.answers > 0) {
    chance.out.open(arguments.text("answers"), std::ios::binary);
    if (!chance.out) return error(Code::io, "{} cannot be written", arguments.text("answers"));
  }
  GrammarBench bench(tokenizer, chance);
  Totals totals;
  const Terminal& terminal = arguments.terminal();
  const int64_t limit = arguments.integer("limit");
  Progress progress(terminal, "schemas", text.size(), Progress::Unit::bytes);
  for (size_t at = 0, number = 1; at < text.size() && (limit == 0 || totals.schemas < limit); ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (line.empty()) continue;
    auto json = parse_json(line, {.max_depth = 200});
    if (!json.ok()) return within(fmt::format("line {}", number), json.error());
    auto done = bench.line(*json, totals);
    if (!done.ok()) return within(fmt::format("line {}", number), done.error());
    progress.update(at);
  }
  if (chance.answers > 0 && !chance.out.flush())
    return error(Code::io, "{} could not be written whole: is the disk full?", arguments.text("answers"));
  print(terminal, totals, tokenizer.size(), arguments.toggle("json"), static_cast<size_t>(arguments.integer("slow")));
  return kExitOk;
}

}  // namespace

Verb bench_grammar_verb() {
  return {.name = "bench grammar",
          .summary = "measure how right and how fast masks of JSON Schemas are",
          .group = "Measure and check",
          .operands = {{.name = "FILE", .help = "lines of JSON: name, schema, tests as [[instance, valid], ...]"}},
          .flags = {model_flag(),
                    {.name = "limit",
                     .kind = Kind::integer,
                     .value = "N",
                     .otherwise = "0",
                     .least = 0,
                     .most = 1 << 30,
                     .help = "only the first N schemas; 0: all"},
                    path_flag("answers", "FILE", "also write answers that chance gives under the masks, lines of JSON"),
                    integer_flag("each", "", "4", 1, 1 << 20, "answers of each schema"),
                    integer_flag("predict", "", "200", 1, 1 << 20, "most tokens of one of them"),
                    integer_flag("seed", "", "1", 0, double{1ll << 53}, "of their chance"),
                    integer_flag("slow", "", "0", 0, 1 << 20,
                                 "also name the N schemas whose masks and compiling were slowest, or that were wrong"),
                    {.name = "json", .help = "as a JSON object, with the reasons of refusals"}},
          .examples = {{"bench grammar maskbench.jsonl -m model.gguf", "pass rate and percentiles"}},
          .notes =
              "An instance counts as accepted if every token of it is in the mask of its place and the answer may end "
              "after the last. Times are what the one thread spent, whatever else the machine does, and include making "
              "states on first use.",
          .run = run_bench_grammar};
}

}  // namespace millrace::apps
