// A model and the files it came from: they may change while it is loaded, which is told, or afterwards, which changes
// nothing; and what is in them decides the fingerprint.
#include "session/loaded_model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "session/fingerprint.h"
#include "session/generator.h"
#include "tensor/gguf_writer.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = MILLRACE_SOURCE_DIR;

constexpr const char* kMadeHere = "iq2_xxs";

// A Llama of one layer in IQ2_XXS, a format that nothing here writes: any bits are numbers, given scales that are.
void write_iq2_xxs(const fs::path& path) {
  constexpr int64_t kWidth = 256, kVocab = 64;
  GgufWriter writer;
  auto put = [&](const char* key, auto value) { ASSERT_TRUE(writer.put(key, value).ok()); };
  put("general.architecture", "llama");
  for (const char* key : {"block_count", "attention.head_count_kv"}) put(fmt::format("llama.{}", key).c_str(), 1u);
  put("llama.attention.head_count", 4u);
  put("llama.context_length", 128u);
  put("llama.embedding_length", static_cast<uint32_t>(kWidth));
  put("llama.feed_forward_length", static_cast<uint32_t>(kWidth));
  put("llama.vocab_size", static_cast<uint32_t>(kVocab));
  put("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  std::vector<std::byte> bytes;
  auto matrix = [&](const char* name, int64_t rows) {
    ASSERT_TRUE(writer.add(name, DType::iq2_xxs, {rows, kWidth}).ok());
    for (int64_t i = 0; i < bytes_of(DType::iq2_xxs, rows * kWidth); ++i) {
      const int64_t in_group = i % 66;  // a scale in float16, here 1/64, and 64 bytes of indices and signs
      bytes.push_back(static_cast<std::byte>(in_group == 0 ? 0 : in_group == 1 ? 0x24 : (i * 7919 + rows) >> 3));
    }
  };
  auto norm = [&](const char* name) {
    ASSERT_TRUE(writer.add(name, DType::f32, {kWidth}).ok());
    const std::vector<float> ones(kWidth, 1.0f);
    const auto add = std::as_bytes(std::span(ones));
    bytes.insert(bytes.end(), add.begin(), add.end());
  };
  matrix("token_embd.weight", kVocab);
  norm("blk.0.attn_norm.weight");
  matrix("blk.0.attn_q.weight", kWidth);
  matrix("blk.0.attn_k.weight", kWidth / 4);
  matrix("blk.0.attn_v.weight", kWidth / 4);
  matrix("blk.0.attn_output.weight", kWidth);
  norm("blk.0.ffn_norm.weight");
  for (const char* name : {"blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight"})
    matrix(name, kWidth);
  norm("output_norm.weight");
  ASSERT_TRUE(writer.begin(path).ok() && writer.write(bytes).ok() && writer.finish().ok());
}

void write(const fs::path& path, std::string_view text) { std::ofstream(path) << text; }

// A copy of a model to be spoilt.
class Copy {
 public:
  Copy(const fs::path& from, const char* name)
      : path_(fs::path(testing::TempDir()) / fmt::format("loaded-{}-{}", getpid(), name)) {
    if (from == kMadeHere) {
      write_iq2_xxs(path_);
    } else {
      fs::copy(kRoot / from, path_, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    }
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

constexpr const char* kModels[] = {"models/stories-14m-q8_0.gguf", "tests/model/golden/llama-mha", kMadeHere};

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

// Of a model whose weights are computed with elsewhere: a digest that was taken there is one of these files only if
// they are the very same.
TEST(LoadedModel, KeepsNoDigestOfOtherFiles) {
  const fs::path folder = fs::path(testing::TempDir()) / fmt::format("loaded-{}-cache", getpid());
  const char* const before = std::getenv("XDG_CACHE_HOME");
  const std::string set_before = before != nullptr ? before : "";
  ::setenv("XDG_CACHE_HOME", folder.c_str(), 1);
  LoadChoice choice = choice_of(kRoot / kModels[0], "cpu");
  choice.weights = false;
  const auto outline = LoadedModel::load(choice).value();
  const std::vector<FileState> ours = outline->checkpoint().states();
  ASSERT_EQ(ours.size(), 1u);
  EXPECT_TRUE(outline->check_same_files(ours).ok());
  const fs::path kept = folder / "millrace" / "digests.json";
  for (auto member : {&FileState::device, &FileState::inode, &FileState::size}) {
    std::vector<FileState> theirs = ours;
    ++(theirs[0].*member);
    const auto same = outline->check_same_files(theirs);
    ASSERT_FALSE(same.ok());
    EXPECT_NE(same.error().message.find("changed between"), std::string::npos) << same.error().message;
    outline->keep_digest(choice, theirs, Identity());
    EXPECT_FALSE(fs::exists(kept));
  }
  EXPECT_FALSE(outline->check_same_files({}).ok());
  std::vector<FileState> touched = ours;
  ++touched[0].changed;  // as much the same as can be told, and not enough to remember for good
  EXPECT_TRUE(outline->check_same_files(touched).ok());
  outline->keep_digest(choice, touched, Identity());
  EXPECT_FALSE(fs::exists(kept));
  outline->keep_digest(choice, ours, Identity());
  EXPECT_TRUE(fs::exists(kept));
  fs::remove_all(folder);
  if (before != nullptr) {
    ::setenv("XDG_CACHE_HOME", set_before.c_str(), 1);
  } else {
    ::unsetenv("XDG_CACHE_HOME");
  }
}

TEST(LoadedModel, GoesOnWhenItsFileIsGone) {
  for (const char* model : kModels) {
    for (const char* device : {"cpu", "reference"}) {
      const Copy copy(model, "gone");
      const auto loaded = LoadedModel::load(choice_of(copy.path(), device)).value();
      auto tell = [&] {
        return Generator::create(loaded->model(), loaded->backend(), {.context = 128})
            .value()
            ->generate(std::vector<Token>{1, 5, 9}, {.max_tokens = 12},
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
    const Fingerprint print = fingerprint_of(*loaded, kv);
    EXPECT_NE(print.pages, print.tokens);
    return std::pair(print.pages, fingerprint_text(print, *loaded, {}));
  };
  const auto print = of(one, DType::f16);
  EXPECT_EQ(print.second.size(), 15u);
  EXPECT_EQ(of(same, DType::f16), print);
  auto expect_other = [&](const auto& changed, const char* what) {
    EXPECT_NE(changed.first, print.first) << what;
    EXPECT_NE(changed.second, print.second) << what;
  };
  expect_other(of(other, DType::f16), "another byte of the weights");
  expect_other(of(set, DType::f16), "another setting");
  expect_other(of(one, DType::f32), "another type of the cache");
  expect_other(of(one, DType::f16, "reference"), "another arithmetic");
  expect_other(of(one, DType::f16, "cpu", Activations::float32), "another arithmetic");
}

// What a model's answers come to beside its weights: pages are shared all the same.
class AnswerPrint : public testing::Test {
 protected:
  struct Print {
    Fingerprint steps;
    std::string text;
  };
  Print of(const LoadChoice& choice, const SpeculateOptions& guesses = {}, const SamplingDefaults& defaults = {}) {
    const auto loaded = LoadedModel::load(choice).value();
    const auto drafters = Drafters::open(guesses, *loaded, 128).value();
    const Fingerprint print = fingerprint_of(*loaded, DType::f16, drafters.get());
    return {print, fingerprint_text(print, *loaded, defaults)};
  }
  Print guessing(std::vector<std::string> names, DraftRule rule, int most = 4) {
    return of(plain_, {.names = std::move(names), .most = most, .rule = rule});
  }
  void expect_other_text(const Print& one, const Print& other, bool tokens, const char* what) {
    EXPECT_EQ(one.steps.pages, other.steps.pages) << what;
    EXPECT_EQ(one.steps.tokens != other.steps.tokens, tokens) << what;
    EXPECT_NE(one.text, other.text) << what;
  }

  const LoadChoice plain_ = choice_of(kRoot / kModels[0], "cpu");
};

TEST_F(AnswerPrint, NamesTheRuleByWhichGuessesAreKept) {
  const Print print = of(plain_);
  EXPECT_EQ(guessing({"ngram"}, DraftRule::exact).text, print.text) << "exact guesses change no answer";
  EXPECT_EQ(guessing({"suffix"}, DraftRule::exact, 7).text, print.text);
  const Print reject = guessing({"ngram"}, DraftRule::reject);
  EXPECT_EQ(guessing({"ngram"}, DraftRule::reject).text, reject.text);
  expect_other_text(reject, print, true, "another rule");
  expect_other_text(reject, guessing({"ngram"}, DraftRule::typical), true, "another rule");
  expect_other_text(reject, guessing({"ngram"}, DraftRule::reject, 5), true, "another number of guesses");
  // A draft model goes by what is in its file, whatever it is called.
  const Copy same(kModels[0], "draft-same.gguf"), other(kModels[0], "draft-other.gguf");
  {
    std::fstream file(other.weights(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(fs::file_size(other.weights()) - 1));
    file.put('\x41');
  }
  const Print model = guessing({(kRoot / kModels[0]).string()}, DraftRule::reject);
  expect_other_text(model, reject, true, "what guesses");
  EXPECT_EQ(guessing({same.path().string()}, DraftRule::reject).text, model.text);
  expect_other_text(model, guessing({other.path().string()}, DraftRule::reject), true, "the draft model's weights");
}

TEST_F(AnswerPrint, NamesWhatARequestLeavesOut) {
  SamplingDefaults warmer, breaks, blocks;
  warmer.sampling.temperature += 0.25;
  breaks.dry_breakers.emplace_back(";");
  blocks.fill.block = 8;
  for (const SamplingDefaults& defaults : {warmer, breaks, blocks})
    expect_other_text(of(plain_, {}, defaults), of(plain_), false, "other defaults");
}

#if MILLRACE_SESSION_TEXT
TEST_F(AnswerPrint, NamesTokenizerAndTemplate) {
  LoadChoice choice = plain_;
  choice.chat_template = "{{ messages[0].content }}";
  expect_other_text(of(choice), of(plain_), false, "another template");
  // Of a directory the files beside the weights count, wherever they lie; without weights it is the same text.
  const Copy one(kModels[1], "text-one"), same(kModels[1], "text-same"), other(kModels[1], "text-other");
  auto tokenizer = [](std::string_view word) {
    return fmt::format(R"({{"model": {{"type": "WordLevel", "vocab": {{"{}": 0, "b": 1}}, "unk_token": "b"}}}})", word);
  };
  write(one.path() / "tokenizer.json", tokenizer("a"));
  write(same.path() / "tokenizer.json", tokenizer("a"));
  write(other.path() / "tokenizer.json", tokenizer("c"));
  const LoadChoice read = choice_of(one.path(), "cpu");
  const Print print = of(read);
  EXPECT_EQ(of(choice_of(same.path(), "cpu")).text, print.text);
  expect_other_text(of(choice_of(other.path(), "cpu")), print, true, "another tokenizer");
  write(same.path() / "chat_template.jinja", "{{ messages[0].content }}");
  expect_other_text(of(choice_of(same.path(), "cpu")), print, false, "a template beside it");
  LoadChoice outline = read;
  outline.weights = false;
  EXPECT_EQ(fingerprint_text(print.steps, *LoadedModel::load(outline).value(), {}), print.text);
  write(one.path() / "tokenizer_config.json", R"({"bos_token": "b"})");
  expect_other_text(of(read), print, true, "other settings of the tokenizer");
}
#endif

// Digests that were taken before are believed as long as their file is the one they were taken of.
class Digests : public testing::Test {
 protected:
  Digests() : folder_(fs::path(testing::TempDir()) / fmt::format("digests-{}", getpid())) {
    fs::create_directories(folder_);
  }
  ~Digests() override { fs::remove_all(folder_); }

  Identity content(const fs::path& path) const {
    const auto backend = make_cpu_backend({.threads = 1}).value();
    const Checkpoint checkpoint = Checkpoint::open(path).value();
    const LoadOptions options{.context = 128, .digest = true, .digests = folder_};
    return Model::load(checkpoint, *backend, options).value()->content().value();
  }
  fs::path kept() const { return folder_ / "digests.json"; }
  std::string text() const { return (std::stringstream() << std::ifstream(kept()).rdbuf()).str(); }

  fs::path folder_;
};

TEST_F(Digests, AreTakenOnceOfAFile) {
  const fs::path model = kRoot / kModels[0];
  const Identity taken = content(model);
  ASSERT_TRUE(fs::exists(kept())) << "unless the model was written within the last two seconds";
  EXPECT_EQ(content(model), taken);
  // That it is read there shows where it says something else.
  std::string changed = text();
  const size_t at = changed.find(':', changed.find("\"digest\"")) + 3;
  changed[at] = changed[at] == '0' ? '1' : '0';
  std::ofstream(kept()) << changed;
  EXPECT_NE(content(model), taken);
  // Nonsense is as good as nothing, and is replaced.
  for (const char* nonsense : {"", "{", "[1, {}, {\"files\": 3}]", "{\"digest\": []}"}) {
    std::ofstream(kept()) << nonsense;
    EXPECT_EQ(content(model), taken) << nonsense;
    EXPECT_EQ(content(model), taken);
    EXPECT_NE(text(), nonsense);
  }
}

TEST_F(Digests, AreNotKeptOfWhatWasJustWritten) {
  const Identity taken = content(kRoot / kModels[0]);
  const std::string before = text();
  const Copy copy(kModels[0], "fresh");
  EXPECT_EQ(content(copy.path()), taken) << "the same bytes under another name";
  EXPECT_EQ(text(), before) << "nothing of the copy, whose entry changed a moment ago";
}

TEST_F(Digests, AFolderThatCannotBeWrittenIsNoError) {
  folder_ = "/proc/nowhere";
  EXPECT_EQ(content(kRoot / kModels[0]), content(kRoot / kModels[0]));
}

}  // namespace
}  // namespace millrace
