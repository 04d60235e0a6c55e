#include <algorithm>
#include <cstdio>

#include "apps/cli/input.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/adapters.h"
#include "apps/run/diffusion.h"
#include "apps/run/flags.h"
#include "apps/run/report.h"
#include "apps/run/speculate.h"
#include "base/json.h"
#include "session/answer.h"
#include "session/chat_prompt.h"
#include "session/generator.h"

namespace millrace::apps {
namespace {

// A context that fits most uses without reserving what a long-context model could have.
constexpr int32_t kUsualContext = 4096;

Result<std::string> prompt_text(const Arguments& arguments) {
  const std::vector<std::string> words = arguments.operands("PROMPT");
  if (!words.empty() && (arguments.given("prompt") || arguments.given("file")))
    return error(Code::invalid, "give the text after NAME, with --prompt or with --file, not twice");
  if (!words.empty()) return fmt::format("{}", fmt::join(words, " "));
  if (arguments.given("prompt") && arguments.given("file"))
    return error(Code::invalid, "give --prompt or --file, not both");
  if (arguments.given("prompt")) return arguments.text("prompt");
  if (arguments.given("file")) return read_input(arguments.text("file"));
  return read_standard_input("-p TEXT");
}

Result<std::vector<Token>> prompt_tokens(const Arguments& arguments, const LoadedModel& model) {
  if (arguments.given("ids")) {
    if (arguments.given("prompt") || arguments.given("file") || !arguments.operands("PROMPT").empty() ||
        arguments.toggle("chat")) {
      return error(Code::invalid, "--ids is the whole prompt; it goes with none of --prompt, --file and --chat");
    }
    std::vector<Token> tokens;
    for (int64_t id : arguments.integers("ids")) tokens.push_back(static_cast<Token>(id));
    return tokens;
  }
  TRY(std::string text, prompt_text(arguments));
  if (!arguments.toggle("chat")) return raw_prompt(model, text);
  std::vector<Message> messages;
  if (arguments.given("system")) messages.push_back({"system", arguments.text("system")});
  messages.push_back({"user", std::move(text)});
  TRY(ChatPrompt prompt, chat_prompt(model, messages));
  return std::move(prompt.tokens);
}

// Everything one run produced, for --json.
struct Transcript {
  std::string text;
  JsonArray logprobs;
};

Json token_json(const LoadedModel& model, Token id, float logprob) {
  JsonObject out = {{"id", id}, {"logprob", logprob}};
#if MILLRACE_SESSION_TEXT
  if (model.tokenizer() != nullptr) out["token"] = valid_utf8(model.tokenizer()->token_bytes(id));
#else
  static_cast<void>(model);
#endif
  return out;
}

Json logprobs_json(const LoadedModel& model, const GeneratedToken& token) {
  Json out = token_json(model, token.id, token.logprobs->chosen);
  JsonArray top;
  for (const TokenLogprob& one : token.logprobs->top) top.push_back(token_json(model, one.id, one.logprob));
  out.get_object()["top"] = std::move(top);
  return out;
}

// As asked for, or long enough for prompt and answer.
int32_t context_of(const Arguments& arguments, const LoadedModel& model, size_t prompt) {
  if (arguments.integer("ctx-size") > 0) return static_cast<int32_t>(arguments.integer("ctx-size"));
  int64_t wanted = static_cast<int64_t>(prompt) + std::max<int64_t>(arguments.integer("predict"), 0) + 1;
  if (arguments.integer("predict") < 0)
    wanted = fills_masks(model.model().spec()) ? wanted + kUsualFill : std::max<int64_t>(wanted, kUsualContext);
  if (model.model().spec().keep.bounded()) return static_cast<int32_t>(wanted);  // distances stay within the model's
  return static_cast<int32_t>(std::min<int64_t>(wanted, model.context()));
}

Result<Generated> stream(const Arguments& arguments, const LoadedModel& model, Generator& generator,
                         std::span<const Token> prompt, const GenerateOptions& options, Transcript& transcript) {
  const Terminal& terminal = arguments.terminal();
  const bool json = arguments.toggle("json"), ids = !json && arguments.toggle("output-ids");
  TRY(Answer answer, Answer::create(model, arguments.texts("stop"), !arguments.toggle("chat")));
  std::string piece;
  auto show = [&] {
    transcript.text += piece;
    if (!json && !ids) terminal.write_out(piece);
    if (!json) std::fflush(stdout);  // as it comes, also into a pipe
    piece.clear();
  };
  Interruptible scope;
  auto result = generator.generate(
      prompt, options,
      [&](const GeneratedToken& token) {
        if (token.logprobs != nullptr && !token.last) transcript.logprobs.push_back(logprobs_json(model, token));
        if (token.last) return Generator::Reply::enough;
        if (ids) terminal.print("{}{}", token.index == 0 ? "" : " ", token.id);
        const bool stopped = answer.push(token.id, piece);
        show();
        if (stopped) return Generator::Reply::stop_string;
        return Interruptible::interrupted() ? Generator::Reply::enough : Generator::Reply::more;
      },
      [] { return Interruptible::interrupted(); });
  if (!result.ok()) return Interruptible::interrupted() ? interrupted_error() : result.error();
  answer.finish(piece);
  show();
  if (!json && (ids || (!transcript.text.empty() && transcript.text.back() != '\n'))) terminal.write_out("\n");
  return result;
}

Json result_json(const LoadedModel& model, const GenerateOptions& options, const Generated& generated,
                 Transcript transcript) {
  JsonArray tokens(generated.tokens.begin(), generated.tokens.end());
  JsonObject out = {{"model", valid_utf8(model.checkpoint().path().string())},
                    {"text", valid_utf8(transcript.text)},
                    {"tokens", std::move(tokens)},
                    {"finish_reason", ending_name(generated.ending)},
                    {"seed", options.sampling.seed},
                    {"usage", times_json(generated.times)},
                    {"memory", memory_json(model.backend())}};
  if (options.logprobs >= 0) out["logprobs"] = std::move(transcript.logprobs);
  if (generated.times.passes > 0) put_passes(generated.times, options.fill, out);
  return out;
}

Result<int> run_run(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  TRY(auto loaded, load_model(arguments, arguments.integer("ctx-size")));
  TRY(Sampling sampling, sampling_of(arguments, *loaded));
  TRY(std::vector<Token> prompt, prompt_tokens(arguments, *loaded));
  ExecutorOptions wanted;
  wanted.context = context_of(arguments, *loaded, prompt.size());
  wanted.rows = step_rows(arguments, "ubatch-size", 512);
  wanted.kv = kv_type(arguments, *loaded);
  warn_of_length(terminal, *loaded, wanted.context);
  TRY(auto drafters, drafters_of(arguments, *loaded, wanted.context));
  TRY(auto generator, Generator::create(loaded->model(), loaded->backend(), wanted, drafters->for_engine()));
  TRY_VOID(use_adapters(arguments, generator->executor()));
  GenerateOptions options = generate_options(arguments, *loaded, sampling);
  TRY(options.fill, fill_of(arguments, *loaded));
  Bounds bounds(*loaded);
  const bool chat = arguments.toggle("chat");
  TRY(options.constraint,
      constraint_of(arguments, bounds,
                    {.continues = !chat, .after = chat ? open_reasoning(*loaded, prompt, Thinking::may) : ""}));
  if (arguments.given("logprobs")) options.logprobs = static_cast<int32_t>(arguments.integer("logprobs"));
  Transcript transcript;
  TRY(Generated generated, stream(arguments, *loaded, *generator, prompt, options, transcript));
  if (arguments.toggle("json")) {
    terminal.print("{}\n", to_text(result_json(*loaded, options, generated, std::move(transcript))));
  } else {
    if (terminal.out_is_tty()) terminal.note("");
    if (sampling.temperature > 0) terminal.note("seed    {}", sampling.seed);
    report(terminal, *loaded, generated.times, fmt::format("ended by: {}", ending_name(generated.ending)));
    note_passes(terminal, generated.times, options.fill);
  }
  return Interruptible::interrupted() ? interrupted_exit_code() : kExitOk;
}

}  // namespace

Verb run_verb() {
  return {.name = "run",
          .summary = "continue a text",
          .group = "Use a model",
          .operands = {model_operand(),
                       {.name = "PROMPT", .required = false, .many = true, .help = "the text, as --prompt has it"}},
          .flags = joined({hub_flags(),
                           {model_flag(),
                            {.name = "prompt",
                             .alias = "-p",
                             .kind = Kind::text,
                             .value = "TEXT",
                             .help = "the text to continue; without it and --file, standard input"},
                            {.name = "file",
                             .alias = "-f",
                             .kind = Kind::path,
                             .value = "FILE",
                             .help = "read the text from a file; - is standard input"},
                            {.name = "ids",
                             .kind = Kind::integer,
                             .value = "ID",
                             .many = Many::commas,
                             .least = 0,
                             .most = 1 << 30,
                             .help = "token ids as the whole prompt, instead of a text"},
                            {.name = "chat", .help = "the text is a question: put it into the model's chat template"},
                            {.name = "system",
                             .alias = "-sys --system-prompt",
                             .kind = Kind::text,
                             .value = "TEXT",
                             .help = "with --chat: what the model is told first"},
                            {.name = "ctx-size",
                             .alias = "-c --ctx --max-model-len",
                             .kind = Kind::integer,
                             .value = "N",
                             .otherwise = "0",
                             .least = 0,
                             .most = 1 << 30,
                             .help = "tokens of prompt and answer together; 0: as long as needed"}},
                           stopping_flags(),
                           bound_flags(),
                           diffusion_flags(),
                           {{.name = "logprobs",
                             .kind = Kind::integer,
                             .value = "N",
                             .least = 0,
                             .most = 1000,
                             .help = "with --json: log-probabilities of each token and of the N likeliest there"},
                            {.name = "output-ids", .help = "print token ids instead of text"},
                            {.name = "json", .help = "print one JSON object when done"}},
                           sampling_flags(),
                           speculate_flags(),
                           adapter_flags(),
                           {ranks_flag(), pipeline_flag(), whole_experts_flag(), transport_flag()},
                           machine_flags()}),
          .examples = {{"run -p 'Once upon a time' -n 100", "the shipped model tells a story"},
                       {"run -m model.gguf --chat -p 'What is the capital of France?' --temp 0",
                        "a question, answered the likeliest way"},
                       {"run -p 'A list:' --json-schema schema.json", "an answer that fits a JSON Schema"},
                       {"run owner/name:Q4_K_M 'Once upon a time'", "a model that was pulled, by its name"},
                       {"run -m model.gguf -f notes.txt --json --logprobs 5", "for a script"}},
          .notes =
              "The text goes in as it is, after the begin token if the model has one. Sampling steps come in this "
              "order: logit bias, "
              "penalties, DRY, top-nsigma, top-k, typical, top-p, min-p, XTC, temperature. Log-probabilities are of "
              "the model's own "
              "distribution, before any of them.",
          .run = run_run};
}

}  // namespace millrace::apps
