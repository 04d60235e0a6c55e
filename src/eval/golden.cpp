#include "eval/golden.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "model/ffns/ffns.h"

namespace millrace {
namespace {

// Under the name the per-architecture files have, or the shorter one of the story model's.
const StoredTensor* find_either(const Checkpoint& file, std::string_view name, std::string_view other) {
  const StoredTensor* found = file.find(name);
  return found != nullptr ? found : file.find(other);
}

struct Limits {
  double relative, kl_mean, kl_max;
  float gap;
  double kl_median = 1e300;
};

// Rounding may turn a close choice between experts for a token or two, and a delta rule carries a difference on: half
// of the rows are near in any case.
bool turns(const ModelSpec& spec) {
  return std::ranges::any_of(spec.layers, [](const LayerSpec& layer) {
    return chosen_experts(layer.ffn) > 0 || std::holds_alternative<DeltaSpec>(layer.mixer);
  });
}

Limits limits(GoldenRule rule, bool turning) {
  constexpr double kNone = 1e300;
  switch (rule) {
    case GoldenRule::reference:
      return {1e-3, kNone, kNone, 0.1f};
    case GoldenRule::float32:
      return {kNone, 1e-5, kNone, 0.1f};
    case GoldenRule::reduced:
      return turning ? Limits{kNone, 0.1, kNone, 1.0f, 5e-3} : Limits{kNone, 1e-3, 5e-3, 0.4f};
    case GoldenRule::codes_of_codes:
      return {kNone, kNone, kNone, turning ? 1.0f : 0.4f, 1e-2};
    case GoldenRule::codes:
      return turning ? limits(GoldenRule::reduced, true) : Limits{kNone, 1e-3, 1e-2, 0.4f};
  }
  return {};
}

Token largest_of(std::span<const float> logits) {
  return static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

std::string failure_of(const GoldenResult& result, const Limits& limit, bool wrong_token) {
  const LogitDistance& d = result.distance;
  if (!d.finite) return "a logit is NaN or infinite";
  if (!(d.relative_difference() <= limit.relative)) {
    return fmt::format("difference {:.2e} of the largest logit, allowed {:.0e}", d.relative_difference(),
                       limit.relative);
  }
  if (!(result.kl_median <= limit.kl_median))
    return fmt::format("median KL {:.2e}, allowed {:.0e}", result.kl_median, limit.kl_median);
  if (!(d.kl_mean() <= limit.kl_mean)) return fmt::format("mean KL {:.2e}, allowed {:.0e}", d.kl_mean(), limit.kl_mean);
  if (!(d.kl_max <= limit.kl_max)) return fmt::format("max KL {:.2e}, allowed {:.0e}", d.kl_max, limit.kl_max);
  if (wrong_token) return fmt::format("another greedy token where the gap is above {}", limit.gap);
  return "";
}

}  // namespace

Result<std::vector<Token>> stored_tokens(const StoredTensor& tensor) {
  std::vector<int32_t> values(static_cast<size_t>(tensor.values()));
  if (tensor.type == DType::i32) {
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  } else if (tensor.type == DType::i64) {
    for (size_t i = 0; i < values.size(); ++i) {
      int64_t wide = 0;
      std::memcpy(&wide, tensor.bytes.data() + i * sizeof wide, sizeof wide);
      if (wide < INT32_MIN || wide > INT32_MAX)
        return error(Code::corrupt, "'{}' has {}, no token id", tensor.name, wide);
      values[i] = static_cast<int32_t>(wide);
    }
  } else {
    return error(Code::corrupt, "'{}' is {}, expected I32 or I64", tensor.name, format(tensor.type).name);
  }
  return values;
}

float greedy_gap(GoldenRule rule) { return limits(rule, false).gap; }

std::string golden_failure(const GoldenResult& result, GoldenRule rule, bool wrong_token) {
  return failure_of(result, limits(rule, false), wrong_token);
}

Result<Golden> read_golden(const std::filesystem::path& path) {
  TRY(Checkpoint file, Checkpoint::open(path));
  const StoredTensor* input = find_either(file, "input_ids", "ids");
  const StoredTensor* logits = file.find("logits");
  if (input == nullptr || logits == nullptr) {
    return error(Code::corrupt, "{}: needs the tensors input_ids and logits", path.string());
  }
  Golden golden;
  TRY(golden.input, stored_tokens(*input));
  TRY(golden.logits, read_floats(*logits));
  const int64_t tokens = static_cast<int64_t>(golden.input.size());
  golden.vocab = logits->shape.empty() ? 0 : logits->shape.back();
  if (tokens == 0 || golden.vocab == 0 || logits->values() != tokens * golden.vocab) {
    return error(Code::corrupt, "{}: {} logits of width {} for {} tokens", path.string(), logits->values(),
                 golden.vocab, tokens);
  }
  if (const StoredTensor* greedy = file.find("greedy")) {
    TRY(golden.greedy, stored_tokens(*greedy));
    const StoredTensor* gaps = file.find("greedy_gap");
    if (gaps == nullptr || gaps->values() != greedy->values()) {
      return error(Code::corrupt, "{}: greedy needs a greedy_gap of the same length", path.string());
    }
    TRY(golden.gaps, read_floats(*gaps));
  }
  for (Token token : golden.input) {
    if (token < 0 || token >= golden.vocab)
      return error(Code::corrupt, "{}: token {} of {}", path.string(), token, golden.vocab);
  }
  for (Token token : golden.greedy) {
    if (token < 0 || token >= golden.vocab)
      return error(Code::corrupt, "{}: token {} of {}", path.string(), token, golden.vocab);
  }
  return golden;
}

ExecutorOptions golden_options(const Golden& golden) {
  ExecutorOptions options;
  options.context = static_cast<int32_t>(golden.input.size() + golden.greedy.size());
  options.rows = static_cast<int32_t>(std::min<size_t>(golden.input.size(), 256));
  options.wanted = options.rows;
  return options;
}

Result<GoldenResult> check_golden(Executor& executor, const Golden& golden, GoldenRule rule) {
  if (executor.vocab() != golden.vocab) {
    return error(Code::invalid, "the model has {} tokens, the golden logits {}", executor.vocab(), golden.vocab);
  }
  KvCache cache(executor.layout(), executor.options().pages, 0);
  SequencePages pages = cache.open(0, {});
  int32_t computed = 0;
  auto run = [&](std::span<const Token> tokens, int32_t wanted) {
    const int32_t count = static_cast<int32_t>(tokens.size());
    CHECK(cache.reserve(pages, computed, computed + count), "the executor has pages for its context");
    executor.carry_out(cache);
    const Chunk chunk{.tokens = tokens, .begin = computed, .tables = pages.tables, .wanted = wanted};
    computed += count;
    return executor.run({&chunk, 1});
  };
  GoldenResult result;
  std::vector<double> divergences;
  Token next = 0;
  while (computed < static_cast<int32_t>(golden.input.size())) {
    const size_t begin = static_cast<size_t>(computed);
    const size_t count = std::min(golden.input.size() - begin, static_cast<size_t>(executor.options().rows));
    Tensor logits = run(std::span(golden.input).subspan(begin, count), static_cast<int32_t>(count));
    for (size_t i = 0; i < count; ++i) {
      std::span<const float> row(logits.row(static_cast<int64_t>(i)), static_cast<size_t>(logits.cols));
      result.distance.add(golden.row(begin + i), row);
      divergences.push_back(divergence(golden.row(begin + i), row));
      next = largest_of(row);
    }
  }
  std::ranges::nth_element(divergences, divergences.begin() + static_cast<ptrdiff_t>(divergences.size() / 2));
  result.kl_median = divergences[divergences.size() / 2];
  const Limits limit = limits(rule, turns(executor.model().spec()));
  bool wrong_token = false;
  for (size_t i = 0; i < golden.greedy.size(); ++i) {
    ++result.greedy;
    if (next == golden.greedy[i]) {
      ++result.equal;
    } else if (result.first_difference < 0) {
      result.first_difference = static_cast<int>(i);
      result.gap_there = golden.gaps[i];
    }
    wrong_token |= next != golden.greedy[i] && golden.gaps[i] > limit.gap;
    if (i + 1 == golden.greedy.size()) break;
    Tensor logits = run(std::span(golden.greedy).subspan(i, 1), 1);
    next = largest_of({logits.row(0), static_cast<size_t>(logits.cols)});
  }
  result.failure = failure_of(result, limit, wrong_token);
  return result;
}

}  // namespace millrace
