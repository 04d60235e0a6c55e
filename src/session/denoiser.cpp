#include "session/denoiser.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/rng.h"

namespace millrace {
namespace {

int32_t steps_of(const DiffusionOptions& options) {
  return options.steps > 0 ? std::min(options.steps, options.length) : std::max(1, (options.length + 1) / 2);
}

// The token a row would have, and how sure it is of it. The mask token is never chosen; ties go to the lower token.
struct Guess {
  Token token = 0;
  double probability = 0, entropy = 0, margin = 0;
};

Guess guess_of(std::span<const float> logits, const DiffusionOptions& options, uint32_t position, uint32_t pass) {
  const auto mask = static_cast<size_t>(options.mask);
  size_t best = mask == 0 ? 1 : 0;
  double chosen = -INFINITY;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (i == mask) continue;
    double value = logits[i];
    if (options.temperature > 0) {  // the largest of logits with Gumbel noise is a draw from their softmax
      const double u = uniform({options.seed, pass, position, static_cast<uint32_t>(i)});
      value = value / options.temperature - std::log(-std::log(std::max(u, 1e-300)));
    }
    if (value > chosen) chosen = value, best = i;
  }
  float most = -INFINITY, second = -INFINITY;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (i == mask) continue;
    if (logits[i] > most) {
      second = most;
      most = logits[i];
    } else {
      second = std::max(second, logits[i]);
    }
  }
  double total = 0, weighted = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (i == mask) continue;
    const double far = static_cast<double>(logits[i]) - most, weight = std::exp(far);
    total += weight;
    weighted += weight * far;
  }
  Guess guess = {.token = static_cast<Token>(best)};
  guess.probability = std::exp(static_cast<double>(logits[best]) - most) / total;
  guess.entropy = std::log(total) - weighted / total;
  guess.margin = (1 - std::exp(static_cast<double>(second) - most)) / total;
  return guess;
}

}  // namespace

Result<Remasking> remasking_from_name(std::string_view name) {
  if (name == "confidence") return Remasking::confidence;
  if (name == "entropy") return Remasking::entropy;
  if (name == "margin") return Remasking::margin;
  if (name == "order") return Remasking::order;
  return error(Code::invalid, "'{}' is no way of choosing positions: expected confidence, entropy, margin or order",
               name);
}

Result<void> read_diffusion(const Checkpoint& checkpoint, const ModelSpec& spec, Token tokenizer_mask,
                            DiffusionOptions& out) {
  TRY(const int64_t in_config, get_int(checkpoint.config(), "mask_token_id", -1));
  TRY(const int64_t in_gguf, checkpoint.metadata().get_int("tokenizer.ggml.mask_token_id", -1));
  const int64_t mask = in_config >= 0 ? in_config : in_gguf >= 0 ? in_gguf : tokenizer_mask;
  if (mask < 0 || mask >= spec.vocab) {
    return error(Code::unsupported,
                 "its attention is not causal, so it writes by filling masks, but its files name no mask token "
                 "(mask_token_id)");
  }
  out.mask = static_cast<Token>(mask);
  TRY(const bool shifts, checkpoint.metadata().get_bool("diffusion.shift_logits", false));
  out.shifted = shifts || spec.architecture == "Dream";
  return {};
}

ExecutorOptions denoise_options(int32_t prompt, const DiffusionOptions& options) {
  ExecutorOptions out;
  out.context = prompt + options.length;
  out.rows = out.context;
  out.wanted = std::min(out.context, options.length + 1);
  out.sees_ahead = true;
  return out;
}

Result<void> Denoiser::check(std::span<const Token> prompt, const DiffusionOptions& options) const {
  const ExecutorOptions wanted = denoise_options(static_cast<int32_t>(prompt.size()), options);
  if (options.length < 1 || options.block < 0 || options.steps < 0)
    return error(Code::invalid, "{} tokens in {} steps by blocks of {}", options.length, options.steps, options.block);
  if (options.shifted && prompt.empty())
    return error(Code::invalid, "the prompt is empty, and the model predicts each token from the one before it");
  if (wanted.context > executor_.options().context || wanted.context > executor_.options().rows ||
      wanted.wanted > executor_.options().wanted) {
    return error(Code::invalid, "prompt and answer have {} tokens together, and there is room for {}", wanted.context,
                 std::min(executor_.options().context, executor_.options().rows));
  }
  for (const Token token : prompt) {
    if (token < 0 || token >= executor_.vocab())
      return error(Code::invalid, "token {} is not one of the model's {}", token, executor_.vocab());
  }
  return {};
}

// Tokens [begin, end) see all before `end`; the last `wanted` give logits.
Tensor Denoiser::compute(int32_t begin, int32_t end, int32_t wanted) {
  const Chunk chunk = {
      .tokens = std::span(tokens_).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
      .begin = begin,
      .tables = tables_,
      .wanted = wanted,
      .whole = true};
  return executor_.run({&chunk, 1});
}

// One pass over what may be filled; gives the positions that were.
Result<std::vector<int32_t>> Denoiser::pass(const DiffusionOptions& options, int32_t prompt, const Pass& pass) {
  const bool frozen = options.block > 0;
  const int32_t shift = options.shifted ? 1 : 0, end = prompt + (frozen ? pass.end : options.length);
  const int32_t begin = frozen ? prompt + pass.begin - shift : 0;
  const int32_t first = prompt + pass.begin - shift;  // the first row that says something of what may be filled
  const Tensor logits = compute(begin, end, end - first);
  std::vector<Candidate> found;
  for (int32_t at = pass.begin; at < pass.end; ++at) {
    if (tokens_[static_cast<size_t>(prompt + at)] != options.mask) continue;
    const std::span<const float> row(logits.row(at - pass.begin), static_cast<size_t>(executor_.vocab()));
    const Guess guess = guess_of(row, options, static_cast<uint32_t>(prompt + at), static_cast<uint32_t>(pass.number));
    if (!std::isfinite(guess.probability)) return error(Code::internal, "a logit is NaN or infinite");
    const double rank = options.remasking == Remasking::confidence ? guess.probability
                        : options.remasking == Remasking::entropy  ? -guess.entropy
                        : options.remasking == Remasking::margin   ? guess.margin
                                                                   : 0;
    found.push_back({at, guess.token, rank});
  }
  std::stable_sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) { return a.rank > b.rank; });
  found.resize(std::min(found.size(), static_cast<size_t>(pass.take)));
  std::vector<int32_t> fixed;
  for (const Candidate& each : found) {
    tokens_[static_cast<size_t>(prompt + each.position)] = each.token;
    fixed.push_back(each.position);
  }
  std::sort(fixed.begin(), fixed.end());
  return fixed;
}

Result<void> Denoiser::fill(const DiffusionOptions& options, int32_t prompt, int32_t begin, int32_t end, int32_t steps,
                            const std::function<bool()>& heard, Denoised& out) {
  int32_t left = end - begin;
  for (int32_t step = 0; step < steps && left > 0; ++step) {
    const int32_t passes_left = steps - step;
    const Pass now = {begin, end, (left + passes_left - 1) / passes_left, out.passes};
    TRY(std::vector<int32_t> fixed, pass(options, prompt, now));
    left -= static_cast<int32_t>(fixed.size());
    ++out.passes;
    out.fixed.push_back(std::move(fixed));
    if (!heard()) return {};
  }
  return {};
}

// What is fixed from the start on. False: the answer has ended, or nobody wants more.
bool Denoiser::tell(const DiffusionOptions& options, int32_t prompt, const Listener& listener, Denoised& out) {
  for (; told_ < options.length; ++told_) {
    const Token token = tokens_[static_cast<size_t>(prompt + told_)];
    if (token == options.mask) return true;
    if (std::find(options.end_tokens.begin(), options.end_tokens.end(), token) != options.end_tokens.end()) {
      out.ended_by = token;
      return false;
    }
    out.tokens.push_back(token);
    if (listener && !listener(token)) return false;
  }
  return false;
}

Result<Denoised> Denoiser::run(std::span<const Token> prompt, const DiffusionOptions& options,
                               const Listener& listener) {
  TRY_VOID(check(prompt, options));
  const auto before = static_cast<int32_t>(prompt.size());
  KvCache cache(executor_.layout(), executor_.options().pages, 0);
  SequencePages pages = cache.open(0, {});
  CHECK(cache.reserve(pages, 0, before + options.length), "the executor has pages for its context");
  executor_.carry_out(cache);
  tables_.assign(pages.tables.begin(), pages.tables.end());
  tokens_.assign(prompt.begin(), prompt.end());
  tokens_.resize(prompt.size() + static_cast<size_t>(options.length), options.mask);
  told_ = 0;
  Denoised out;
  bool more = true;
  auto heard = [&] { return more = tell(options, before, listener, out); };
  const int32_t steps = steps_of(options);
  if (options.block == 0) {
    TRY_VOID(fill(options, before, 0, options.length, steps, heard, out));
    return out;
  }
  if (before > 0) compute(0, before, 0);
  const int32_t blocks = (options.length + options.block - 1) / options.block;
  for (int32_t block = 0; block < blocks && more; ++block) {
    const int32_t begin = block * options.block, end = std::min(options.length, begin + options.block);
    const int32_t share = steps / blocks + (block < steps % blocks ? 1 : 0);
    TRY_VOID(fill(options, before, begin, end, std::max(1, share), heard, out));
    if (more && block + 1 < blocks) compute(before + begin, before + end, 0);  // what the next blocks read
  }
  return out;
}

}  // namespace millrace
