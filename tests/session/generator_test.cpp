#include "session/generator.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/human.h"
#include "engine/draft/replay.h"
#include "eval/golden.h"
#include "session/loaded_model.h"

namespace millrace {
namespace {

// A tiny model with golden logits and a generator on it.
struct Rig {
  std::unique_ptr<LoadedModel> loaded;
  Golden golden;
  std::unique_ptr<Generator> generator;

  explicit Rig(const char* name, ExecutorOptions options = {}, const DraftOptions& draft = {}) {
    const auto folder = std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/model/golden" / name;
    LoadChoice choice{.path = folder, .device = "cpu"};
    choice.cpu.threads = 1;
    choice.cpu.activations = Activations::float32;
    loaded = LoadedModel::load(choice).value();
    if (options.context == 0) options.context = 128;
    generator = Generator::create(loaded->model(), loaded->backend(), options, draft).value();
    golden = read_golden(folder / "golden.safetensors").value();
  }
};

GenerateOptions greedy(int32_t tokens) { return {.sampling = {.temperature = 0}, .max_tokens = tokens}; }

Generator::Reply more(const GeneratedToken&) { return Generator::Reply::more; }

TEST(Generator, ContinuesAsTheOtherImplementationDid) {
  for (const char* name : {"llama-gqa-rope3", "mistral-swa", "gpt2", "bloom"}) {
    for (int32_t rows : {7, 512}) {
      Rig rig(name, {.rows = rows, .kv = DType::f32});
      Generator& generator = *rig.generator;
      auto result =
          generator.generate(rig.golden.input, greedy(static_cast<int32_t>(rig.golden.greedy.size())), more).value();
      EXPECT_EQ(result.ending, Ending::length);
      for (size_t i = 0; i < rig.golden.greedy.size(); ++i) {
        if (result.tokens[i] == rig.golden.greedy[i]) continue;
        EXPECT_LT(rig.golden.gaps[i], 0.1f) << name << " token " << i;
        break;
      }
    }
  }
}

// States are found again where the answer ended, and where the prompt did if the next turn leaves the answer out.
TEST(Generator, ComputesOnlyWhatIsNewWithStatesToo) {
  for (const char* name : {"mamba", "rwkv", "lfm2", "qwen3_5_text", "recurrent_gemma", "nemotron_h", "falcon_h1",
                           "stripedhyena", "zamba2"}) {
    // Room for all of it: what leaves a full cache first depends on what steps took.
    Rig rig(name, {.context = 512, .rows = 64, .pages = 400});
    Generator& generator = *rig.generator;
    const GenerateOptions options{.sampling = {.seed = 5}, .max_tokens = 9};
    std::vector<Token> prompt;
    for (int i = 0; i < 5; ++i) prompt.insert(prompt.end(), rig.golden.input.begin(), rig.golden.input.end());
    auto first = generator.generate(prompt, options, more).value();
    EXPECT_EQ(first.times.reused_tokens, 0) << name;
    std::vector<Token> talk = prompt;
    talk.insert(talk.end(), first.tokens.begin(), first.tokens.end());
    for (Token token : {7, 8, 9}) talk.push_back(token);
    auto second = generator.generate(talk, options, more).value();
    // At most a page beside what is new, where keys of a window are kept too.
    EXPECT_GE(second.times.reused_tokens, static_cast<int32_t>(talk.size()) - 4 - 16) << name;

    std::vector<Token> other = prompt;
    for (Token token : {(first.tokens[0] + 1) % 320, 3, 4}) other.push_back(token);
    generator.forget();
    (void)generator.generate(prompt, options, more).value();
    auto third = generator.generate(other, options, more).value();
    const int32_t node = generator.executor().layout().node_tokens, size = static_cast<int32_t>(prompt.size());
    EXPECT_EQ(third.times.reused_tokens, (size - 1) / node * node) << name;
    EXPECT_LE(size - third.times.reused_tokens, node) << name;

    generator.forget();
    EXPECT_EQ(generator.generate(talk, options, more).value().tokens, second.tokens) << name;
    generator.forget();
    EXPECT_EQ(generator.generate(other, options, more).value().tokens, third.tokens) << name;
  }
}

TEST(Generator, ComputesOnlyWhatIsNew) {
  Rig rig("llama-gqa-rope3");
  Generator& generator = *rig.generator;
  const GenerateOptions options{.sampling = {.seed = 5}, .max_tokens = 9};
  std::vector<Token> talk = rig.golden.input;
  auto first = generator.generate(talk, options, more).value();
  EXPECT_EQ(first.times.reused_tokens, 0);
  talk.insert(talk.end(), first.tokens.begin(), first.tokens.end());
  for (Token token : {7, 8, 9}) talk.push_back(token);
  const int64_t rows_before = generator.executor().counters().rows;
  auto second = generator.generate(talk, options, more).value();
  // The last token of the first answer was chosen, but never computed.
  EXPECT_EQ(second.times.reused_tokens, static_cast<int32_t>(talk.size()) - 4);
  EXPECT_EQ(generator.executor().counters().rows - rows_before, 4 + 8);

  generator.forget();
  EXPECT_EQ(generator.generate(talk, options, more).value().tokens, second.tokens)
      << "reuse must not change the answer";

  // Another question after half of the talk, then the same prompt again.
  std::vector<Token> other(talk.begin(), talk.begin() + 20);
  other.push_back(100);
  auto third = generator.generate(other, options, more).value();
  EXPECT_EQ(third.times.reused_tokens, 20);
  auto again = generator.generate(other, options, more).value();
  EXPECT_EQ(again.times.reused_tokens, 20) << "the last token is computed for its logits";
  EXPECT_EQ(again.tokens, third.tokens);
}

TEST(Generator, ReuseIsExactInWindowedModelsToo) {
  Rig rig("mistral-swa"), other("mistral-swa");
  Generator& generator = *rig.generator;
  auto alone = [&](const std::vector<Token>& prompt, const GenerateOptions& options) {
    other.generator->forget();
    return other.generator->generate(prompt, options, more).value().tokens;
  };
  std::vector<Token> talk = rig.golden.input;
  const GenerateOptions options{.sampling = {.seed = 9}, .max_tokens = 12};
  for (int turn = 0; turn < 3; ++turn) {
    auto answer = generator.generate(talk, options, more).value();
    EXPECT_EQ(answer.tokens, alone(talk, options));
    EXPECT_EQ(answer.times.reused_tokens > 0, turn > 0);
    talk.insert(talk.end(), answer.tokens.begin(), answer.tokens.end());
    talk.push_back(7);
  }
  // Back to a place that the window has passed: what is still there of it is as good as computed again.
  std::vector<Token> cut(talk.begin(), talk.begin() + 12);
  auto again = generator.generate(cut, options, more).value();
  EXPECT_EQ(again.tokens, alone(cut, options));
}

TEST(Generator, GuessesChangeNoAnswer) {
  std::vector<Token> known;
  auto truth = [&](const DraftAsk&) -> std::span<const Token> { return known; };
  auto make = [&](Executor& executor, Backend&) -> Result<std::unique_ptr<Drafter>> {
    return std::unique_ptr<Drafter>(new ReplayDrafter(truth, 0.8, 3, executor.vocab()));
  };
  Rig rig("llama-gqa-rope3", {}, {.make = make, .most = 4, .beside = {}}), other("llama-gqa-rope3");
  Generator &plain = *other.generator, &guessing = *rig.generator;
  int64_t accepted = 0, windows = 0;  // whether they pay is the machine's business; they are tried
  for (const Sampling& sampling : {Sampling{.temperature = 0}, Sampling{.seed = 5},
                                   Sampling{.repetition = 1.2, .mirostat = 2, .seed = 6}, Sampling{.top_k = 5}}) {
    const GenerateOptions options{.sampling = sampling, .max_tokens = 60, .logprobs = 2};
    known = plain.generate(rig.golden.input, options, more).value().tokens;
    const Generated guessed = guessing.generate(rig.golden.input, options, more).value();
    EXPECT_EQ(guessed.tokens, known);
    windows += guessed.times.windows;
    EXPECT_GE(guessed.times.drafted_tokens, guessed.times.accepted_tokens);
    accepted += guessed.times.accepted_tokens;
    // Whoever listens stops in the middle of what was guessed right: what follows is no part of the answer.
    auto ten = [](const GeneratedToken& token) {
      return token.index == 9 ? Generator::Reply::stop_string : Generator::Reply::more;
    };
    const Generated cut = guessing.generate(rig.golden.input, options, ten).value();
    EXPECT_EQ(cut.tokens, std::vector<Token>(known.begin(), known.begin() + 10));
    EXPECT_EQ(cut.ending, Ending::stop_string);
  }
  EXPECT_GT(windows, 0);
  EXPECT_GT(accepted, 0);
}

// A rule that always has all its guesses has fewer where no more fit.
TEST(Generator, AShortContextHasFewerGuesses) {
  auto make = [](Executor& executor, Backend&) -> Result<std::unique_ptr<Drafter>> {
    auto nothing = [](const DraftAsk&) -> std::span<const Token> { return {}; };
    return std::unique_ptr<Drafter>(new ReplayDrafter(nothing, 1, 3, executor.vocab()));
  };
  for (const int32_t context : {2, 4}) {
    for (const DraftRule rule : {DraftRule::exact, DraftRule::typical}) {
      Rig rig("llama-gqa-rope3", {.context = context}, {.make = make, .most = 8, .beside = {}, .rule = rule});
      EXPECT_TRUE(rig.generator->generate(std::vector<Token>{7}, greedy(1), more).ok()) << context;
    }
  }
  Rig rig("llama-gqa-rope3", {.context = 1}, {.make = make, .most = 8, .beside = {}});
  EXPECT_FALSE(rig.generator->generate(std::vector<Token>{7}, greedy(1), more).ok());
}

TEST(Generator, EndsWhereItShould) {
  Rig rig("llama-gqa-rope3", {.kv = DType::f32});
  Generator& generator = *rig.generator;
  auto plain = generator.generate(rig.golden.input, greedy(16), more).value();
  const Token third = plain.tokens[2];
  const size_t place =
      static_cast<size_t>(std::find(plain.tokens.begin(), plain.tokens.end(), third) - plain.tokens.begin());

  GenerateOptions options = greedy(16);
  options.end_tokens = {third};
  auto ended = generator.generate(rig.golden.input, options, more).value();
  EXPECT_EQ(ended.ending, Ending::end_token);
  EXPECT_EQ(ended.ended_by, third);
  EXPECT_EQ(ended.tokens,
            std::vector<Token>(plain.tokens.begin(), plain.tokens.begin() + static_cast<ptrdiff_t>(place)));
  EXPECT_EQ(ended.times.answer_tokens, static_cast<int32_t>(place) + 1);

  options.ignore_end = true;
  auto ignored = generator.generate(rig.golden.input, options, more).value();
  EXPECT_EQ(ignored.ending, Ending::length);
  EXPECT_EQ(std::count(ignored.tokens.begin(), ignored.tokens.end(), third), 0);

  options.stop_tokens = {third};
  EXPECT_EQ(generator.generate(rig.golden.input, options, more).value().ending, Ending::stop_token);

  options = greedy(16);
  options.end_tokens = {third};
  options.min_tokens = static_cast<int32_t>(place) + 2;
  auto late = generator.generate(rig.golden.input, options, more).value();
  EXPECT_GE(late.tokens.size(), place + 2);
  EXPECT_EQ(std::count(late.tokens.begin(), late.tokens.begin() + options.min_tokens, third), 0);

  auto stopped = generator.generate(rig.golden.input, greedy(16), [](const GeneratedToken& token) {
    return token.index == 4 ? Generator::Reply::stop_string : Generator::Reply::more;
  });
  EXPECT_EQ(stopped->ending, Ending::stop_string);
  EXPECT_EQ(stopped->tokens.size(), 5u);
  EXPECT_EQ(generator.generate(rig.golden.input, greedy(0), more).value().tokens.size(), 0u);
}

TEST(Generator, TheContextIsALimitWithNumbers) {
  Rig rig("llama-gqa-rope3", {.context = 45});
  Generator& generator = *rig.generator;
  auto full = generator.generate(rig.golden.input, greedy(-1), more).value();
  EXPECT_EQ(full.ending, Ending::context);
  EXPECT_EQ(full.tokens.size(), 5u);
  EXPECT_EQ(generator.generate(rig.golden.input, greedy(5), more).value().ending, Ending::length);
  EXPECT_EQ(generator.generate(rig.golden.input, greedy(6), more).value().ending, Ending::context);
  std::vector<Token> longer(45, 3);
  auto refused = generator.generate(longer, greedy(1), more);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("45 tokens"), std::string::npos) << refused.error().message;
  EXPECT_FALSE(generator.generate({}, greedy(1), more).ok());
  EXPECT_FALSE(generator.generate(std::vector<Token>{320}, greedy(1), more).ok());
  EXPECT_FALSE(generator.generate(std::vector<Token>{-1}, greedy(1), more).ok());
  // And it goes on after a refusal.
  EXPECT_EQ(generator.generate(rig.golden.input, greedy(-1), more).value().tokens, full.tokens);
}

TEST(Generator, ReportsLogprobsOfTheModel) {
  Rig rig("llama-gqa-rope3");
  Generator& generator = *rig.generator;
  GenerateOptions options{.sampling = {.temperature = 2, .seed = 1}, .max_tokens = 5, .logprobs = 320};
  int tokens = 0;
  auto result = generator.generate(rig.golden.input, options, [&](const GeneratedToken& token) {
    double mass = 0;
    float chosen = 1;
    for (const TokenLogprob& one : token.logprobs->top) {
      mass += std::exp(static_cast<double>(one.logprob));
      if (one.id == token.id) chosen = one.logprob;
    }
    EXPECT_NEAR(mass, 1, 1e-5);
    EXPECT_EQ(chosen, token.logprobs->chosen);
    ++tokens;
    return Generator::Reply::more;
  });
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(tokens, 5);
}

TEST(Generator, BrokenParametersAreRefused) {
  Rig rig("llama-gqa-rope3");
  Generator& generator = *rig.generator;
  EXPECT_FALSE(generator.generate(rig.golden.input, {.sampling = {.top_p = 0}}, more).ok());
  EXPECT_FALSE(generator.generate(rig.golden.input, {.sampling = {.banned = {5000}}}, more).ok());
}

TEST(LoadedModel, KnowsEndTokensWithoutATokenizer) {
  Rig rig("llama-gqa-rope3");
  EXPECT_EQ(std::vector<Token>(rig.loaded->end_tokens().begin(), rig.loaded->end_tokens().end()),
            std::vector<Token>{2});
  EXPECT_FALSE(LoadedModel::load({.path = "/nowhere/model.gguf"}).ok());
  EXPECT_FALSE(LoadedModel::load({.path = rig.loaded->checkpoint().path(), .device = "abacus"}).ok());
}

TEST(Executor, RefusesWhatDoesNotFit) {
  Rig rig("llama-gqa-rope3");
  auto plan = Executor::plan(rig.loaded->model(), rig.loaded->backend(), {.context = 1 << 20, .sequences = 64});
  ASSERT_TRUE(plan.ok());
  rig.loaded->backend().set_limit(64 << 20);
  auto refused = Executor::create(rig.loaded->model(), rig.loaded->backend(), {.context = 1 << 20, .sequences = 64});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::no_memory);
  EXPECT_NE(refused.error().message.find(human_bytes(static_cast<uint64_t>(plan->kv_bytes))), std::string::npos)
      << refused.error().message;
  EXPECT_FALSE(Executor::plan(rig.loaded->model(), rig.loaded->backend(), {.kv = DType::q4_k}).ok());
  EXPECT_FALSE(Executor::plan(rig.loaded->model(), rig.loaded->backend(), {.context = -1}).ok());
}

}  // namespace
}  // namespace millrace
