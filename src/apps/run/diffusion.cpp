#include "apps/run/diffusion.h"
#include "apps/run/adapters.h"

#include <chrono>
#include <cstdio>

#include "apps/cli/interrupt.h"
#include "apps/cli/terminal.h"
#include "apps/run/flags.h"
#include "apps/run/report.h"
#include "base/json.h"
#include "session/answer.h"
#include "session/denoiser.h"

namespace millrace::apps {
namespace {

constexpr int32_t kUsualLength = 128;

// What is said of one token after another has no meaning where they come in any order.
Result<void> check_flags(const Arguments& arguments) {
  for (std::string_view flag :
       {"json-schema", "regex", "grammar", "choice", "logprobs", "top-k", "top-p", "min-p", "typical", "top-nsigma",
        "xtc-probability", "repeat-penalty", "presence-penalty", "frequency-penalty", "dry-multiplier", "mirostat",
        "logit-bias", "ban-token-ids", "min-tokens"}) {
    if (arguments.given(flag))
      return error(Code::unsupported, "--{} cannot be promised by a model that fills masks; leave it out", flag);
  }
  return {};
}

Result<DiffusionOptions> options_of(const Arguments& arguments, const LoadedModel& loaded, const Sampling& sampling) {
  DiffusionOptions options;
  Token mask = -1;
#if MILLRACE_SESSION_TEXT
  if (loaded.tokenizer() != nullptr) mask = loaded.tokenizer()->special().mask;
#endif
  TRY_VOID(read_diffusion(loaded.checkpoint(), loaded.model().spec(), mask, options));
  options.length = arguments.integer("predict") > 0 ? static_cast<int32_t>(arguments.integer("predict")) : kUsualLength;
  options.steps = static_cast<int32_t>(arguments.integer("diffusion-steps"));
  options.block = static_cast<int32_t>(arguments.integer("block-length"));
  TRY(options.remasking, remasking_from_name(arguments.text("remask")));
  options.temperature = arguments.given("temp") ? sampling.temperature : 0;
  options.seed = sampling.seed;
  if (!arguments.toggle("ignore-eos"))
    options.end_tokens.assign(loaded.end_tokens().begin(), loaded.end_tokens().end());
  return options;
}

}  // namespace

std::vector<Flag> diffusion_flags() {
  return {integer_flag("diffusion-steps", "", "0", 0, 1 << 20,
                       "models that fill masks: passes over the answer; 0: one for every two tokens"),
          integer_flag("block-length", "", "0", 0, 1 << 20,
                       "models that fill masks: fill so many tokens at a time and keep what is finished; 0: compute "
                       "everything in every pass"),
          text_flag("remask", "RULE", "confidence", "confidence|entropy|margin|order",
                    "models that fill masks: which positions a pass fills first")};
}

Result<int> run_diffusion(const Arguments& arguments, LoadedModel& loaded, std::span<const Token> prompt) {
  const Terminal& terminal = arguments.terminal();
  TRY_VOID(check_flags(arguments));
  TRY(const Sampling sampling, sampling_of(arguments, loaded));
  TRY(const DiffusionOptions options, options_of(arguments, loaded, sampling));
  ExecutorOptions wanted = denoise_options(static_cast<int32_t>(prompt.size()), options);
  wanted.kv = kv_type(arguments, loaded);
  TRY(auto executor, Executor::create(loaded.model(), loaded.backend(), wanted));
  TRY_VOID(use_adapters(arguments, *executor));
  TRY(Answer answer, Answer::create(loaded, arguments.texts("stop"), !arguments.toggle("chat")));
  const bool json = arguments.toggle("json"), ids = !json && arguments.toggle("output-ids");
  std::string text, piece;
  bool first = true, stopped = false;
  auto show = [&] {
    text += piece;
    if (!json && !ids) terminal.write_out(piece);
    if (!json) std::fflush(stdout);
    piece.clear();
  };
  Interruptible scope;
  const auto start = std::chrono::steady_clock::now();
  Denoiser denoiser(*executor);
  TRY(const Denoised out, denoiser.run(prompt, options, [&](Token token) {
    if (ids) terminal.print("{}{}", first ? "" : " ", token);
    first = false;
    stopped = answer.push(token, piece);
    show();
    return !stopped && !Interruptible::interrupted();
  }));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  answer.finish(piece);
  show();
  if (!json && (ids || (!text.empty() && text.back() != '\n'))) terminal.write_out("\n");
  const double per_pass = out.passes > 0 ? static_cast<double>(out.tokens.size()) / out.passes : 0;
  const std::string_view mode = options.block > 0 ? "frozen blocks" : "exact";
  if (json) {
    terminal.print("{}\n", to_text(JsonObject{{"model", valid_utf8(loaded.checkpoint().path().string())},
                                              {"text", valid_utf8(text)},
                                              {"tokens", JsonArray(out.tokens.begin(), out.tokens.end())},
                                              {"finish_reason", out.ended_by >= 0 || stopped ? "stop" : "length"},
                                              {"mode", mode},
                                              {"passes", out.passes},
                                              {"tokens_a_pass", per_pass},
                                              {"seconds", seconds},
                                              {"memory", memory_json(loaded.backend())}}));
  } else {
    terminal.note("{} tokens in {} passes ({:.2f} a pass, {}), {:.2f} s", out.tokens.size(), out.passes, per_pass, mode,
                  seconds);
  }
  return Interruptible::interrupted() ? interrupted_exit_code() : kExitOk;
}

}  // namespace millrace::apps
