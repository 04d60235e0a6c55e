// WordPiece and BERT's normalizer against ids that a plain Python program computed from their description.
#include <gtest/gtest.h>

#include "tensor/gguf_writer.h"
#include "text/test_data.h"

namespace millrace {
namespace {

// The vocabulary as a tokenizer.json with BERT's steps.
std::string bert_json(const Json& data, bool lowercase) {
  JsonObject vocab;
  int64_t id = 0;
  for (const Json& token : data.as_object().at("vocab").as_array()) vocab[token.as_string()] = id++;
  JsonArray added;
  for (int64_t i = 0; i < 5; ++i) {
    added.push_back(JsonObject{
        {"id", i}, {"content", data.as_object().at("vocab").as_array()[static_cast<size_t>(i)]}, {"special", true}});
  }
  return to_text(JsonObject{
      {"added_tokens", std::move(added)},
      {"normalizer", JsonObject{{"type", "BertNormalizer"}, {"lowercase", lowercase}, {"strip_accents", nullptr}}},
      {"pre_tokenizer", JsonObject{{"type", "BertPreTokenizer"}}},
      {"post_processor",
       JsonObject{{"type", "BertProcessing"}, {"cls", JsonArray{"[CLS]", 2}}, {"sep", JsonArray{"[SEP]", 3}}}},
      {"decoder", JsonObject{{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
      {"model", JsonObject{{"type", "WordPiece"}, {"unk_token", "[UNK]"}, {"vocab", std::move(vocab)}}}});
}

TEST(WordPiece, GivesTheStoredIds) {
  const Json data = test::read_json(test::data("word_piece.json"));
  for (const char* kind : {"uncased", "cased"}) {
    auto tokenizer = Tokenizer::from_json(bert_json(data, kind == std::string("uncased")));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    for (const Json& each : data.as_object().at("cases").as_array()) {
      const std::string text = test::str(each.as_object().at("text"));
      EXPECT_EQ(tokenizer->encode(text).value(), test::ids(each.as_object().at(kind))) << kind << ": " << text;
    }
  }
}

TEST(WordPiece, TheSameFromAListOfWords) {
  const Json data = test::read_json(test::data("word_piece.json"));
  std::string words;
  for (const Json& token : data.as_object().at("vocab").as_array()) words += test::str(token) + "\n";
  auto uncased = Tokenizer::from_words(words);
  auto cased = Tokenizer::from_words(words, JsonObject{{"do_lower_case", false}});
  ASSERT_TRUE(uncased.ok()) << uncased.error().message;
  ASSERT_TRUE(cased.ok()) << cased.error().message;
  for (const Json& each : data.as_object().at("cases").as_array()) {
    const std::string text = test::str(each.as_object().at("text"));
    EXPECT_EQ(uncased->encode(text).value(), test::ids(each.as_object().at("uncased"))) << text;
    EXPECT_EQ(cased->encode(text).value(), test::ids(each.as_object().at("cased"))) << text;
  }
  EXPECT_FALSE(Tokenizer::from_words("hello\nworld\n").ok());
}

// GGUF marks the beginnings of words instead of what goes on with them.
TEST(WordPiece, TheSameFromGguf) {
  const Json data = test::read_json(test::data("word_piece.json"));
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  for (const Json& token : data.as_object().at("vocab").as_array()) {
    const std::string text = test::str(token);
    const bool control = tokens.size() < 5;
    tokens.push_back(control                                     ? text
                     : text.starts_with("##") && text.size() > 2 ? text.substr(2)
                                                                 : "\xE2\x96\x81" + text);
    types.push_back(control ? 3 : 1);
  }
  GgufWriter writer;
  ASSERT_TRUE(writer.put("tokenizer.ggml.model", "bert").ok());
  ASSERT_TRUE(writer.put("tokenizer.ggml.tokens", std::span<const std::string>(tokens)).ok());
  ASSERT_TRUE(writer.put("tokenizer.ggml.token_type", std::span<const int32_t>(types)).ok());
  ASSERT_TRUE(writer.put("tokenizer.ggml.unknown_token_id", uint32_t{1}).ok());
  ASSERT_TRUE(writer.put("tokenizer.ggml.seperator_token_id", uint32_t{3}).ok());
  const auto path = std::filesystem::path(::testing::TempDir()) / "word_piece.gguf";
  ASSERT_TRUE(writer.begin(path).ok());
  ASSERT_TRUE(writer.finish().ok());
  auto file = Checkpoint::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  auto tokenizer = Tokenizer::open(*file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  for (const Json& each : data.as_object().at("cases").as_array()) {
    const std::string text = test::str(each.as_object().at("text"));
    EXPECT_EQ(tokenizer->encode(text).value(), test::ids(each.as_object().at("uncased"))) << text;
  }
  const auto both = tokenizer->encode("hello", {.add_special = true}).value();
  EXPECT_EQ(both.front(), 2);
  EXPECT_EQ(both.back(), 3);
  auto pair = tokenizer->encode_pair("hello", "world");
  ASSERT_TRUE(pair.ok());
  EXPECT_EQ(pair->tokens.size(), 5u);
  EXPECT_EQ(pair->second, 3u);
}

TEST(WordPiece, PairsHaveTheModelsTokensAndTypes) {
  const Json data = test::read_json(test::data("word_piece.json"));
  auto tokenizer = Tokenizer::from_json(bert_json(data, true));
  ASSERT_TRUE(tokenizer.ok());
  const Token hello = *tokenizer->token_to_id("hello"), world = *tokenizer->token_to_id("world");
  auto pair = tokenizer->encode_pair("hello hello", "world");
  ASSERT_TRUE(pair.ok());
  EXPECT_EQ(pair->tokens, (std::vector<Token>{2, hello, hello, 3, world, 3}));
  EXPECT_EQ(pair->second, 4u);
  auto shorter = tokenizer->encode_pair("hello hello", "world", 5);
  ASSERT_TRUE(shorter.ok());
  EXPECT_EQ(shorter->tokens, (std::vector<Token>{2, hello, 3, world, 3}));
  EXPECT_EQ(tokenizer->decode(std::vector<Token>{hello, world}), "hello world");
  EXPECT_FALSE(test::stories().encode_pair("a", "b").ok());
}

// RoBERTa's, by its own post-processor and by a template.
TEST(WordPiece, PairsOfRoberta) {
  const std::string model = R"("model": {"type": "BPE", "vocab": {"<s>": 0, "</s>": 1, "a": 2, "b": 3}, "merges": []})";
  const std::string own = R"("post_processor": {"type": "RobertaProcessing", "cls": ["<s>", 0], "sep": ["</s>", 1]})";
  const std::string by_template = R"("post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
               {"SpecialToken": {"id": "</s>", "type_id": 0}}],
    "pair": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
             {"SpecialToken": {"id": "</s>", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}},
             {"Sequence": {"id": "B", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
    "special_tokens": {"<s>": {"ids": [0]}, "</s>": {"ids": [1]}}})";
  for (const std::string& post : {own, by_template}) {
    auto tokenizer = Tokenizer::from_json("{" + model + "," + post + "}");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    auto pair = tokenizer->encode_pair("a", "b");
    ASSERT_TRUE(pair.ok());
    EXPECT_EQ(pair->tokens, (std::vector<Token>{0, 2, 1, 1, 3, 1}));
    EXPECT_EQ(pair->second, 0u);
  }
}

}  // namespace
}  // namespace millrace
