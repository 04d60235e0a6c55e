#include "eval/fill_quality.h"

#include <algorithm>

#include "base/check.h"
#include "engine/request.h"

namespace millrace {
namespace {

// Pages of one sequence, all there from the start.
struct Room {
  KvCache cache;
  SequencePages pages;

  Room(Executor& executor, int32_t tokens)
      : cache(executor.layout(), executor.options().pages, 0), pages(cache.open(0, {})) {
    CHECK(cache.reserve(pages, 0, tokens), "the executor has pages for its context");
    executor.carry_out(cache);
  }
};

struct Parts {
  Executor& executor;
  Executor* whole;  // to compare with; null: nothing to compare
  std::span<const Token> ends;
};

Tensor compute(Executor& executor, const Room& room, std::span<const Token> tokens, int32_t begin, int32_t wanted) {
  const Chunk chunk = {.tokens = tokens.subspan(static_cast<size_t>(begin)),
                       .begin = begin,
                       .tables = room.pages.tables,
                       .wanted = wanted,
                       .whole = true};
  return executor.run({&chunk, 1});
}

// Distributions of the positions that are still masked, in a pass by blocks and with everything computed.
void compare(const Parts& parts, const FillShape& shape, const FillStep& step, const Filling& filling,
             const Tensor& logits, Token mask, LogitDistance& out) {
  Room room(*parts.whole, shape.total());
  const int32_t shift = shape.shifted ? 1 : 0;
  const Tensor all = compute(*parts.whole, room, filling.tokens(), 0, shape.length + shift);
  const auto vocab = static_cast<size_t>(parts.executor.vocab());
  for (int32_t at = step.first; at < step.end; ++at) {
    if (filling.tokens()[static_cast<size_t>(shape.prompt + at)] != mask) continue;
    out.add({all.row(at), vocab}, {logits.row(at - step.first), vocab});
  }
}

Result<void> fill_one(const Parts& parts, const Request& request, FillQuality& out) {
  const FillSpec& model = parts.executor.model().spec().fill;
  const FillShape shape(static_cast<int32_t>(request.prompt.size()), request.max_tokens, request.fill, model.shifted);
  Filling filling(request.prompt, shape, model.mask);
  Room room(parts.executor, shape.total());
  std::vector<Token> answer;
  for (int32_t pass = 0, kept = 0;;) {
    const FillStep step = next_fill(shape, kept, pass);
    if (step.count == 0) break;
    out.rows += step.count;
    const auto seen = filling.tokens().first(static_cast<size_t>(step.begin + step.count));
    const Tensor logits = compute(parts.executor, room, seen, step.begin, step.wanted);
    if (step.pass < 0) {
      kept = step.begin + step.count;
      continue;
    }
    if (parts.whole != nullptr) compare(parts, shape, step, filling, logits, model.mask, out.frozen);
    auto rows = [&](int32_t row) {
      return std::span<const float>(logits.row(row), static_cast<size_t>(parts.executor.vocab()));
    };
    TRY(const std::vector<Token> told, filling.fill(step, request, 0, rows));
    answer.insert(answer.end(), told.begin(), told.end());
    ++pass;
    ++out.passes;
    out.tokens += step.take;
  }
  const auto end = std::find_first_of(answer.begin(), answer.end(), parts.ends.begin(), parts.ends.end());
  out.answers.emplace_back(answer.begin(), end);
  return {};
}

}  // namespace

Result<std::unique_ptr<Executor>> filling_executor(const Model& model, Backend& backend, int32_t prompt, int32_t length,
                                                   const KvForm& kv) {
  if (!fills_masks(model.spec()))
    return error(Code::invalid, "the model goes on token by token; this measures models that fill masks");
  ExecutorOptions options = {.context = prompt + length, .kv = kv};
  suit_requests(model.spec(), options);
  return Executor::create(model, backend, options);
}

Result<FillQuality> measure_filling(Executor& executor, Executor& whole, std::span<const std::vector<Token>> prompts,
                                    int32_t length, const FillAsk& ask, std::span<const Token> end_tokens,
                                    const std::function<bool()>& go_on) {
  FillQuality out;
  for (const auto& prompt : prompts) {
    Request request;
    request.prompt = prompt;
    request.max_tokens = length;
    request.sampling.temperature = 0;
    request.fill = ask;
    if (prompt.empty() || length < 1) return error(Code::invalid, "prompts and answers have at least one token");
    TRY_VOID(check_fill(request, true, executor.options().rows));
    TRY_VOID(fill_one({executor, ask.block > 0 ? &whole : nullptr, end_tokens}, request, out));
    if (go_on && !go_on()) return error(Code::cancelled, "stopped");
  }
  return out;
}

}  // namespace millrace
