// Experts, latents, shared keys and states in every way that must not matter: chunks, neighbours, prefixes that are
// found, pages moved out, answers computed again, caches written to files.
#include <fcntl.h>
#include <unistd.h>

#include <future>

#include "eval/cache_check.h"
#include "eval/crowd_check.h"
#include "model/rig.h"
#include "tensor/files.h"

namespace millrace {
namespace {

// Beside the states of most models pages hold 64 tokens, so that less than that is not found again.
bool has_long_pages(std::string_view name) {
  return name == "bamba" || name == "granitemoehybrid" || name == "jamba" || name == "nemotron_h";
}
CrowdSize size_of(std::string_view name) {
  return {.requests = 16,
          .parallel = 8,
          .prompt = has_long_pages(name) ? 224 : 64,
          .tokens = 24,
          .swap_bytes = 1 << 20,
          .kv = DType::f16,
          .adapters = {}};
}

// Models that keep nothing but states and short windows. So few pages are theirs that nobody is put off, and copies of
// their states stand far apart.
bool keeps_no_keys(std::string_view name) {
  return name == "mamba" || name == "mamba2" || name == "falcon_mamba" || name == "rwkv" || name == "recurrent_gemma";
}

int prompt_of(std::string_view name) { return keeps_no_keys(name) ? 450 : has_long_pages(name) ? 224 : 48; }
int context_of(std::string_view name) { return keeps_no_keys(name) ? 500 : has_long_pages(name) ? 288 : 96; }

// Those that are here: some lie beside the project.
std::vector<std::string> kinds(bool with_keys = false) {
  std::vector<std::string> names;
  for (const char* name :
       {"mixtral",         "olmoe",        "phimoe",         "qwen2_moe",   "qwen3_moe",    "glm4_moe",
        "gpt_oss",         "llama4_text",  "minimax_m2",     "deepseek_v2", "deepseek_v3",  "minicpm3",
        "gemma3n_text",    "gemma4_text",  "gemma4_experts", "mamba",       "mamba2",       "falcon_mamba",
        "falcon_h1",       "bamba",        "jamba",          "nemotron_h",  "lfm2",         "recurrent_gemma",
        "qwen3_next",      "qwen3_5_text", "minimax",        "rwkv",        "stripedhyena", "zamba2",
        "granitemoehybrid"}) {
    if (with_keys && keeps_no_keys(name)) continue;
    if (std::filesystem::exists(test::golden_path(name))) names.emplace_back(name);
  }
  return names;
}

class Kinds : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    checkpoint_ = std::make_unique<Checkpoint>(Checkpoint::open(test::golden_path(GetParam())).value());
    backend_ = make_cpu_backend({.threads = 1}).value();
    model_ = Model::load(*checkpoint_, *backend_, {.context = context_of(GetParam())}).value();
  }

  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
};

class KindsWithKeys : public Kinds {};

TEST_P(KindsWithKeys, AnswerInACrowdAsTheyDoAlone) {
  const std::vector<CrowdWay> ways = crowd_ways();
  const CrowdSize size = size_of(GetParam());
  std::optional<CrowdOutcome> expected;
  int64_t put_off = 0, found_again = 0;
  for (const CrowdWay& way : ways) {
    auto found = run_crowd(*model_, *backend_, size, way, crowd_requests(size, model_->spec().vocab, 5), [](int) {});
    ASSERT_TRUE(found.ok()) << way.name << ": " << found.error().message;
    if (!expected) {
      expected = std::move(*found);
      continue;
    }
    EXPECT_EQ(first_difference(expected->answers, found->answers), -1) << way.name;
    found_again += found->metrics.cached_tokens;
    if (GetParam() != "bamba") {
      EXPECT_GT(found->metrics.cached_tokens, 0) << way.name;
    }
    put_off += found->metrics.preemptions;
    EXPECT_EQ(found->metrics.second_pages_used > 0, way.swaps) << way.name;
  }
  EXPECT_GT(put_off, 0);
  EXPECT_GT(found_again, 0);
}

TEST_P(Kinds, EveryWayThroughTheCacheGivesTheSameBits) {
  const test::Golden golden = test::Golden::read(test::golden_path(GetParam()));
  const auto tokens = static_cast<int32_t>(golden.input.size());
  auto executor = Executor::create(*model_, *backend_, cache_check_options(tokens, DType::f16, 16)).value();
  std::optional<CacheOutcome> expected;
  for (const CacheWay& way : cache_ways(tokens, 16, true)) {
    CacheOutcome found = run_way(*executor, golden.input, way);
    if (!expected) {
      expected = std::move(found);
    } else if (way.planted) {
      EXPECT_GE(first_difference(*expected, found), tokens / 2);
    } else {
      EXPECT_EQ(first_difference(*expected, found), -1) << way.name;
    }
  }
}

TEST_P(Kinds, FilesBringTheCacheBack) {
  const test::Folder room;
  const std::string path = (room.path() / "cache").string();
  Request request;
  for (Token token = 0; token < prompt_of(GetParam()); ++token) request.prompt.push_back((token * 37 + 11) % 300 + 5);
  request.max_tokens = 12;
  request.sampling.temperature = 0;
  const EngineOptions options = {.executor = {.context = context_of(GetParam()), .kv = DType::f16},
                                 .limits = {.max_sequences = 2}};
  std::vector<Token> answers[2];
  for (std::vector<Token>& answer : answers) {
    auto engine = Engine::create(*model_, *backend_, options).value();
    if (&answer == &answers[1]) {
      auto restored = engine->restore_cache(path);
      ASSERT_TRUE(restored.ok()) << restored.error().message;
      EXPECT_GT(restored->tokens, 0);
    }
    std::promise<void> ended;
    engine->submit(request, [&](std::span<const Event> events) {
      for (const Event& event : events) {
        if (event.token) answer.push_back(*event.token);
        if (event.finish != Finish::none) ended.set_value();
      }
    });
    ended.get_future().wait();
    EXPECT_EQ(engine->snapshot().metrics.cached_tokens > 0, &answer == &answers[1]);
    std::promise<Result<CacheFileSummary>> saved;
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ASSERT_GE(file, 0);
    engine->save_cache(file, [&](Result<CacheFileSummary> summary) { saved.set_value(std::move(summary)); });
    EXPECT_TRUE(saved.get_future().get().ok());
    ::close(file);
  }
  EXPECT_EQ(answers[0].size(), 12u);
  EXPECT_EQ(answers[0], answers[1]);
}

INSTANTIATE_TEST_SUITE_P(Architectures, Kinds, ::testing::ValuesIn(kinds()), test::test_name);
INSTANTIATE_TEST_SUITE_P(Architectures, KindsWithKeys, ::testing::ValuesIn(kinds(true)), test::test_name);

}  // namespace
}  // namespace millrace
