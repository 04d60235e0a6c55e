#include <charconv>

#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/adapters.h"
#include "apps/run/flags.h"
#include "base/json.h"
#include "eval/cache_check.h"
#include "session/loaded_model.h"

namespace millrace::apps {
namespace {

#if MILLRACE_SESSION_TEXT
constexpr std::string_view kUsualPrompt =
    "Once upon a time there was a mill by a river. The wheel turned as fast as the water came, day and night, and "
    "nobody in the village had ever seen it stop. One day a girl asked the miller why.";
#endif

struct Line {
  int threads = 0;
  CacheWay way;
  uint64_t hash = 0;
  int32_t differs_at = -1;
};

Result<std::vector<Token>> prompt_of(const Arguments& arguments, const LoadedModel& model) {
  std::vector<Token> tokens;
  for (int64_t id : arguments.integers("ids")) tokens.push_back(static_cast<Token>(id));
#if MILLRACE_SESSION_TEXT
  if (tokens.empty() && model.tokenizer() != nullptr) {
    const std::string text = arguments.given("prompt") ? arguments.text("prompt") : std::string(kUsualPrompt);
    if (model.begin_token()) tokens.push_back(*model.begin_token());
    TRY(const std::vector<Token> list, model.tokenizer()->encode(text));
    tokens.insert(tokens.end(), list.begin(), list.end());
  }
#endif
  if (tokens.empty() && arguments.given("prompt")) return error(Code::invalid, "{}", model.tokenizer_error());
  // A model without a tokenizer can still be checked: any tokens will do.
  for (Token i = 0; tokens.size() < 48 && !arguments.given("prompt") && !arguments.given("ids"); ++i) {
    tokens.push_back(static_cast<Token>((i * int64_t{7919} + 3) % model.vocab()));
  }
  for (Token token : tokens) {
    if (token < 0 || token >= model.vocab())
      return error(Code::invalid, "token {} is not one of the model's {}", token, model.vocab());
  }
  if (tokens.size() < 2)
    return error(Code::invalid, "a prompt of {} tokens shows nothing; give at least 2", tokens.size());
  return tokens;
}

Result<int> run_verify_cache(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  const bool plant = arguments.toggle("plant");
  TRY(auto path, model_path(arguments));
  const KvForm kv = kv_form(arguments);
  const int32_t page_tokens = static_cast<int32_t>(arguments.integer("page-tokens"));
  std::vector<Line> lines;
  std::optional<CacheOutcome> expected;
  size_t tokens = 0;
  const std::string device = arguments.text("device");
  for (int threads : {1, 2, 4}) {
    if (threads > 1 && device != "cpu") break;  // nobody else has threads to vary
    LoadChoice choice{.path = path, .device = device};
    choice.cpu.threads = threads;
    TRY(choice.keep, kv_keep(arguments));
    TRY(auto loaded, LoadedModel::load(choice));
    TRY(std::vector<Token> prompt, prompt_of(arguments, *loaded));
    tokens = prompt.size();
    const int32_t count = static_cast<int32_t>(prompt.size());
    TRY(auto executor,
        Executor::create(loaded->model(), loaded->backend(), cache_check_options(count, kv, page_tokens)));
    TRY_VOID(use_adapters(arguments, *executor));
    if (threads == 1) {
      terminal.note("{}: {}, keys and values as {}{}", path.string(), counted(count, "token"), kv.name(),
                    choice.keep ? fmt::format(", of which {} are kept", choice.keep.name()) : "");
    }
    for (const CacheWay& way : cache_ways(count, page_tokens, plant && threads == 1)) {
      CacheOutcome found = run_way(*executor, prompt, way);
      if (!expected) expected = found;
      lines.push_back({threads, way, found.hash, first_difference(*expected, found)});
    }
  }
  int differences = 0;
  Table table({{"threads", Table::Align::right}, {"way"}, {"logits"}, {"same as the first"}});
  JsonArray array;
  for (const Line& line : lines) {
    const bool same = line.differs_at < 0;
    if (!same) ++differences;
    std::string verdict = same ? terminal.out_paint(Style::green, "yes")
                               : terminal.out_paint(Style::red, fmt::format("NO, from position {}", line.differs_at));
    table.row({fmt::format("{}", line.threads), line.way.name, fmt::format("{:016x}", line.hash), verdict});
    array.push_back(JsonObject{{"threads", line.threads},
                               {"way", line.way.name},
                               {"hash", fmt::format("{:016x}", line.hash)},
                               {"same", same}});
  }
  if (arguments.toggle("json")) {
    terminal.print("{}\n",
                   to_text(JsonObject{{"tokens", tokens}, {"differences", differences}, {"ways", std::move(array)}}));
  } else {
    table.print(terminal);
    terminal.note("{} in {} to compute the same {}", counted(differences, "difference"),
                  counted(static_cast<int64_t>(lines.size()), "way"),
                  counted(static_cast<int64_t>(tokens), "position"));
  }
  if (plant && differences == 0) terminal.fail("the flipped bits did not show: the check is blind");
  return differences == 0 && !plant ? kExitOk : kExitFailure;
}

}  // namespace

Verb verify_cache_verb() {
  return {
      .name = "verify cache",
      .summary = "check that cached, chunked and batched computing give the same bits",
      .group = "Measure and check",
      .flags = joined({{model_flag(),
                        device_flag(),
                        {.name = "prompt",
                         .alias = "-p",
                         .kind = Kind::text,
                         .value = "TEXT",
                         .help = "the text to compute (default: a few sentences)"},
                        {.name = "ids",
                         .kind = Kind::integer,
                         .value = "ID",
                         .many = Many::commas,
                         .least = 0,
                         .most = 1 << 30,
                         .help = "token ids instead of a text"},
                        {.name = "kv-type",
                         .alias = "--kv --kv-cache-dtype",
                         .kind = Kind::text,
                         .value = "TYPE",
                         .otherwise = "f16",
                         .choices = kKvForms,
                         .help = "numbers that keys and values are kept in"}},
                       kv_apart_flags(),
                       {kv_keep_flag()},
                       adapter_flags(),
                       {{.name = "page-tokens",
                         .kind = Kind::integer,
                         .value = "N",
                         .otherwise = "16",
                         .least = 1,
                         .most = 1024,
                         .help = "tokens of a page of the cache, a power of two"},
                        {.name = "plant", .help = "also flip stored bits half way, which must be found: exit code 1"},
                        {.name = "json", .help = "as a JSON object"}}}),
      .examples = {{"verify cache", "the shipped model"},
                   {"verify cache -m model.gguf --kv bf16", "another, with bfloat16 keys and values"}},
      .notes =
          "The prompt is computed in one pass, token by token and in chunks of 7, a page and a page and one, alone "
          "and beside "
          "other sequences whose pages lie among its own, with 1, 2 and 4 threads. The logits of all positions "
          "must be the same to "
          "the last bit; their hash is printed for each way. Exit code 1 if one differs.",
      .run = run_verify_cache};
}

}  // namespace millrace::apps
