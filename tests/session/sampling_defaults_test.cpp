// The defaults of sampling: ours, and above them what a model's files say, as Hugging Face and llama.cpp write it.
#include "session/sampling_defaults.h"

#include <gtest/gtest.h>

#include <fstream>

#include "model/convert.h"
#include "tensor/gguf_writer.h"

namespace millrace {
namespace {

class Folder {
 public:
  Folder() : path_(std::filesystem::path(::testing::TempDir()) / fmt::format("defaults-{}", ::getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A checkpoint that has only what is looked at here.
Checkpoint directory(const Folder& folder, std::string_view generation_config) {
  for (const char* name : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/model/golden/bloom" / name,
                               folder.path() / name, std::filesystem::copy_options::overwrite_existing);
  std::ofstream(folder.path() / "generation_config.json") << generation_config;
  return Checkpoint::open(folder.path()).value();
}

TEST(SamplingDefaults, AreOursWithoutAWordFromTheModel) {
  const Folder folder;
  const SamplingDefaults defaults = sampling_defaults(directory(folder, R"({"eos_token_id": 2})"));
  EXPECT_EQ(defaults.sampling.temperature, 0.8);
  EXPECT_EQ(defaults.sampling.top_k, 40);
  EXPECT_EQ(defaults.sampling.top_p, 0.95);
  EXPECT_EQ(defaults.sampling.min_p, 0.05);
  EXPECT_EQ(defaults.sampling.repetition, 1);
  EXPECT_TRUE(defaults.of_model.empty() && defaults.ignored.empty());
  EXPECT_TRUE(check_sampling(defaults.sampling, 10).ok());
  EXPECT_EQ(sampling_text(defaults), "temperature 0.8, top_k 40, top_p 0.95, min_p 0.05");
}

TEST(SamplingDefaults, AreThoseOfGenerationConfig) {
  const Folder folder;
  const SamplingDefaults defaults = sampling_defaults(directory(
      folder,
      R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.05, "min_p": null})"));
  EXPECT_EQ(defaults.sampling.temperature, 0.6);
  EXPECT_EQ(defaults.sampling.top_k, 20);
  EXPECT_EQ(defaults.sampling.top_p, 0.9);
  EXPECT_EQ(defaults.sampling.min_p, 0.05);  // ours
  EXPECT_EQ(defaults.sampling.repetition, 1.05);
  EXPECT_EQ(defaults.of_model, (std::vector<std::string>{"temperature", "top_k", "top_p", "repetition_penalty"}));
  EXPECT_NE(sampling_text(defaults).find("top_k 20 (the model's)"), std::string::npos);
}

TEST(SamplingDefaults, OutsideTheirRangeAreNotUsedAndSaid) {
  const Folder folder;
  const SamplingDefaults defaults = sampling_defaults(
      directory(folder, R"({"temperature": -1, "top_k": 2.5, "top_p": "much", "repetition_penalty": 1e9})"));
  EXPECT_EQ(defaults.sampling.temperature, 0.8);
  EXPECT_EQ(defaults.sampling.top_k, 40);
  EXPECT_EQ(defaults.sampling.top_p, 0.95);
  EXPECT_EQ(defaults.sampling.repetition, 1);
  EXPECT_TRUE(defaults.of_model.empty());
  ASSERT_EQ(defaults.ignored.size(), 4U);
  EXPECT_NE(defaults.ignored[0].find("temperature of the model is not used"), std::string::npos);
}

TEST(SamplingDefaults, AreThoseOfGgufKeys) {
  const Folder folder;
  const std::filesystem::path path = folder.path() / "a.gguf";
  GgufWriter writer;
  ASSERT_TRUE(writer.put("general.architecture", "llama").ok());
  ASSERT_TRUE(writer.put("general.sampling.temp", 0.7F).ok());
  ASSERT_TRUE(writer.put("general.sampling.top_k", int32_t{20}).ok());
  ASSERT_TRUE(writer.put("general.sampling.penalty_repeat", 1.05F).ok());
  ASSERT_TRUE(writer.put("general.sampling.penalty_last_n", int32_t{64}).ok());
  ASSERT_TRUE(writer.put("general.sampling.mirostat", int32_t{1}).ok());
  ASSERT_TRUE(writer.add("token_embd.weight", DType::f32, {1, 32}).ok());
  ASSERT_TRUE(writer.begin(path).ok());
  const std::vector<std::byte> bytes(128);
  ASSERT_TRUE(writer.write(bytes).ok());
  ASSERT_TRUE(writer.finish().ok());
  const SamplingDefaults defaults = sampling_defaults(Checkpoint::open(path).value());
  EXPECT_EQ(defaults.sampling.temperature, 0.7);  // not 0.699999988
  EXPECT_EQ(defaults.sampling.top_k, 20);
  EXPECT_EQ(defaults.sampling.repetition, 1.05);
  EXPECT_EQ(defaults.sampling.penalty_window, 64);
  EXPECT_EQ(defaults.sampling.mirostat, 0);
  EXPECT_EQ(defaults.ignored.size(), 1U);  // version 1 is not built
}

// A directory and the GGUF file made of it, and of that another, give the same defaults.
TEST(SamplingDefaults, SurviveConversion) {
  const Folder folder;
  const Checkpoint before = directory(
      folder, R"({"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.01, "typical_p": 0.3, "do_sample": true,
                  "repetition_penalty": 1.05, "eos_token_id": 2})");
  const std::filesystem::path one = folder.path() / "one.gguf", two = folder.path() / "two.gguf";
  ConvertOptions options = {.sampling = [&](GgufWriter& writer) { return put_sampling(writer, before); }, .threads = 1};
  ASSERT_TRUE(convert(ModelSource::open(before).value(), one, options).ok());
  const Checkpoint after = Checkpoint::open(one).value();
  ASSERT_TRUE(convert(ModelSource::open(after).value(), two, {.threads = 1}).ok());
  const SamplingDefaults wanted = sampling_defaults(before);
  EXPECT_EQ(wanted.of_model.size(), 6u);
  for (const SamplingDefaults& defaults :
       {sampling_defaults(after), sampling_defaults(Checkpoint::open(two).value())}) {
    EXPECT_EQ(to_text(sampling_json(defaults)), to_text(sampling_json(wanted)));
    EXPECT_EQ(defaults.of_model, wanted.of_model);
    EXPECT_TRUE(defaults.ignored.empty());
  }
}

}  // namespace
}  // namespace millrace
