// A model and the files it came from: they may change while it is loaded, which is told, or afterwards, which changes
// nothing; and what is in them decides the fingerprint.
#include "session/loaded_model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "session/fingerprint.h"
#include "session/generator.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = MILLRACE_SOURCE_DIR;

// A copy of a model to be spoilt.
class Copy {
 public:
  Copy(const fs::path& from, const char* name)
      : path_(fs::path(testing::TempDir()) / fmt::format("loaded-{}-{}", getpid(), name)) {
    fs::copy(kRoot / from, path_, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    fs::permissions(weights(), fs::perms::owner_all);
    fs::last_write_time(weights(), fs::file_time_type::clock::now() - std::chrono::hours(1));
  }
  ~Copy() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }
  fs::path weights() const { return fs::is_directory(path_) ? path_ / "model.safetensors" : path_; }

 private:
  fs::path path_;
};

LoadChoice choice_of(const fs::path& path, std::string device) {
  LoadChoice choice{.path = path, .device = std::move(device), .context = 128, .fingerprint = true};
  choice.cpu.threads = 1;
  return choice;
}

constexpr const char* kModels[] = {"models/stories-14m-q8_0.gguf", "tests/model/golden/llama-mha"};

TEST(LoadedModel, AFileCutShortWhileLoadingIsAnError) {
  for (const char* model : kModels) {
    for (const char* device : {"cpu", "reference"}) {
      const Copy copy(model, "short");
      LoadChoice choice = choice_of(copy.path(), device);
      choice.progress = [&](int64_t, int64_t) {
        fs::resize_file(copy.weights(), 5000);
        return true;
      };
      const auto loaded = LoadedModel::load(choice);
      ASSERT_FALSE(loaded.ok());
      EXPECT_NE(loaded.error().message.find("changed while it was read"), std::string::npos) << loaded.error().message;
    }
  }
}

TEST(LoadedModel, AFileWrittenToWhileLoadingIsAnError) {
  for (const char* model : kModels) {
    const Copy copy(model, "written");
    LoadChoice choice = choice_of(copy.path(), "cpu");
    choice.progress = [&](int64_t, int64_t) {
      std::fstream file(copy.weights(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(fs::file_size(copy.weights()) / 2));
      file << "something else";
      return true;
    };
    const auto loaded = LoadedModel::load(choice);
    ASSERT_FALSE(loaded.ok());
    EXPECT_NE(loaded.error().message.find("written to while it was read"), std::string::npos) << loaded.error().message;
  }
}

TEST(LoadedModel, GoesOnWhenItsFileIsGone) {
  for (const char* model : kModels) {
    for (const char* device : {"cpu", "reference"}) {
      const Copy copy(model, "gone");
      const auto loaded = LoadedModel::load(choice_of(copy.path(), device)).value();
      auto tell = [&] {
        auto executor = Executor::create(loaded->model(), loaded->backend(), {.context = 128}).value();
        Generator generator(*executor);
        return generator
            .generate(std::vector<Token>{1, 5, 9}, {.max_tokens = 12},
                      [](const GeneratedToken&) { return Generator::Reply::more; })
            .value()
            .tokens;
      };
      const std::vector<Token> before = tell();
      fs::resize_file(copy.weights(), 0);
      EXPECT_EQ(tell(), before) << model << " on " << device;
    }
  }
}

TEST(Fingerprint, IsOfContentNotOfNames) {
  const Copy one(kModels[1], "one"), same(kModels[1], "same"), other(kModels[1], "other"), set(kModels[1], "set");
  {
    std::fstream file(other.weights(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(fs::file_size(other.weights()) - 1));
    file.put('\x41');
  }
  {
    std::string text = (std::stringstream() << std::ifstream(set.path() / "config.json").rdbuf()).str();
    const size_t at = text.find("\"rms_norm_eps\"");
    ASSERT_NE(at, std::string::npos);
    text.insert(at, "\"bos_token_id_of_old\": 7, ");
    std::ofstream(set.path() / "config.json") << text;
  }
  auto of = [](const Copy& copy, DType kv, const char* device = "cpu", Activations activations = Activations::fast) {
    LoadChoice choice = choice_of(copy.path(), device);
    choice.cpu.activations = activations;
    const auto loaded = LoadedModel::load(choice).value();
    return fingerprint_of(loaded->model(), loaded->backend(), kv).text();
  };
  const std::string print = of(one, DType::f16);
  EXPECT_EQ(print.size(), 15u);
  EXPECT_EQ(of(same, DType::f16), print);
  EXPECT_NE(of(other, DType::f16), print) << "another byte of the weights";
  EXPECT_NE(of(set, DType::f16), print) << "another setting";
  EXPECT_NE(of(one, DType::f32), print) << "another type of the cache";
  EXPECT_NE(of(one, DType::f16, "reference"), print) << "another arithmetic";
  EXPECT_NE(of(one, DType::f16, "cpu", Activations::float32), print) << "another arithmetic";
}

}  // namespace
}  // namespace millrace
