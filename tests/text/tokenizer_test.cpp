#include "text/tokenizer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tensor/gguf_writer.h"
#include "text/detokenizer.h"
#include "text/gguf_vocab.h"
#include "text/test_data.h"
#include "text/unicode.h"

namespace millrace {
namespace {

using Ids = std::vector<Token>;

Result<Tokenizer> load(const std::string& json) { return Tokenizer::from_json(json); }

// A tokenizer with this model and these other members.
Result<Tokenizer> with(const std::string& model, const std::string& rest) {
  return load(R"({"model": )" + model + (rest.empty() ? "" : ", " + rest) + "}");
}

const std::string kLetters =
    R"({"type": "BPE", "vocab": {"<unk>": 0, "a": 1, "b": 2, "c": 3, "ab": 4, "abc": 5, "▁": 6, "▁a": 7,
  " ": 8}, "merges": ["a b", "ab c", "▁ a"], "unk_token": "<unk>"})";

TEST(Tokenizer, ByteStringsOfEveryKindComeBack) {
  const Tokenizer tokenizer = test::stories();
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    const std::string text = test::random_text(random);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text).value()), text);
  }
}

TEST(Tokenizer, BytesThatAreNotUtf8AreReplaced) {
  const Tokenizer tokenizer = test::stories();
  EXPECT_EQ(tokenizer
                .encode("a\xFF\xFE"
                        "b\xE4\xBD")
                .value(),
            tokenizer.encode("a\uFFFD\uFFFDb\uFFFD").value());
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) {
    std::string bytes;
    for (size_t n = random() % 50; n > 0; --n) bytes.push_back(static_cast<char>(random()));
    const std::string text = tokenizer.decode(tokenizer.encode(bytes).value());
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text).value()), text);
  }
}

TEST(Tokenizer, ControlTokensOnlyWhenAskedFor) {
  const Tokenizer tokenizer = test::stories();
  const std::string text = "<|begin|>Once<|end|>";
  const Ids parsed = tokenizer.encode(text, {.parse_special = true}).value(), plain = tokenizer.encode(text).value();
  EXPECT_EQ(parsed.front(), 1);
  EXPECT_EQ(parsed.back(), 2);
  EXPECT_EQ(std::count_if(plain.begin(), plain.end(), [&](Token id) { return tokenizer.is_special(id); }), 0);
  EXPECT_EQ(tokenizer.decode(plain), text);
  EXPECT_EQ(tokenizer.decode(parsed, {.skip_special = true}), "Once");
  EXPECT_TRUE(tokenizer.is_special(1));
  EXPECT_FALSE(tokenizer.is_special(100));
  EXPECT_FALSE(tokenizer.is_special(-1));
  EXPECT_FALSE(tokenizer.is_special(1 << 30));
}

TEST(Tokenizer, ManyThreadsGetTheSame) {
  const Tokenizer tokenizer = test::golden("llama3");
  std::vector<std::string> texts;
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) texts.push_back(test::random_text(random));
  std::vector<Ids> expected;
  for (const std::string& text : texts) expected.push_back(tokenizer.encode(text).value());
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < texts.size(); ++i) {
        const size_t at = (i * 7 + t * 50) % texts.size();
        if (tokenizer.encode(texts[at]).value() != expected[at]) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Tokenizer, LongRunsAreMergedAsWholes) {
  const Tokenizer tokenizer = test::golden("llama3");
  for (const char* unit : {"a", " ", "\n", "=", "ab", "中", "x1"}) {
    std::string text;
    while (text.size() < 300000) text += unit;
    const Ids tokens = tokenizer.encode(text).value();
    EXPECT_EQ(tokenizer.decode(tokens), text) << unit;
    EXPECT_LE(tokens.size(), text.size());
  }
}

TEST(Tokenizer, AddsWhatThePostProcessorSays) {
  auto tokenizer =
      with(kLetters, R"("post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>",
    "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}], "pair": [],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [9], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [10], "tokens":
    ["</s>"]}}}, "added_tokens": [{"id": 9, "content": "<s>", "special": true}, {"id": 10, "content": "</s>", "special": true}])");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->encode("abc", {.add_special = true}).value(), (Ids{9, 5, 10}));
  EXPECT_EQ(tokenizer->encode("abc").value(), (Ids{5}));
  EXPECT_EQ(tokenizer->encode("", {.add_special = true}).value(), (Ids{9, 10}));
  EXPECT_TRUE(tokenizer->special().add_begin);
  EXPECT_EQ(tokenizer->special().begin, 9);
}

TEST(Tokenizer, ConfigurationOverrulesThePostProcessor) {
  const std::string json =
      R"({"model": )" + kLetters + R"(, "added_tokens": [{"id": 9, "content": "<s>", "special": true}]})";
  auto config = parse_json(R"({"bos_token": {"content": "<s>"}, "add_bos_token": true, "eos_token": "c"})");
  auto ends = parse_json(R"({"eos_token_id": [3, 2, 999]})");
  auto tokenizer = Tokenizer::from_json(json, *config, *ends);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->encode("ab", {.add_special = true}).value(), (Ids{9, 4}));
  EXPECT_EQ(Ids(tokenizer->ends().begin(), tokenizer->ends().end()), (Ids{2, 3}));
  EXPECT_TRUE(tokenizer->is_end(3));
  EXPECT_FALSE(tokenizer->is_end(9));
}

TEST(Tokenizer, EndsAreFoundByNameWhereNoFileListsThem) {
  const Tokenizer qwen = test::golden("qwen3");
  EXPECT_TRUE(qwen.is_end(151645));  // <|im_end|>
  EXPECT_TRUE(qwen.is_end(151643));  // <|endoftext|>
  EXPECT_EQ(qwen.special().end_of_turn, 151645);
}

TEST(Tokenizer, TokensByTextAndId) {
  auto tokenizer = with(kLetters, "");
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->token_to_id("abc"), 5);
  EXPECT_EQ(tokenizer->token_to_id("zzz"), std::nullopt);
  EXPECT_EQ(tokenizer->token_text(5), "abc");
  EXPECT_EQ(tokenizer->token_text(-5), "");
  EXPECT_EQ(tokenizer->special().unknown, 0);
  const Tokenizer stories = test::stories();
  EXPECT_EQ(stories.token_text(399), "Once");
  EXPECT_EQ(stories.token_bytes(398), " upon");
  const Tokenizer llama = test::golden("llama2");
  EXPECT_EQ(llama.token_bytes(*llama.token_to_id("<0xE4>")), "\xE4");
  EXPECT_EQ(llama.token_bytes(llama.encode("world").value()[0]), " world");
}

TEST(Tokenizer, UnknownCharacters) {
  EXPECT_EQ(with(kLetters, "")->encode("axyb").value(), (Ids{1, 0, 0, 2}));
  std::string fused = kLetters;
  fused.insert(fused.rfind('}'), R"(, "fuse_unk": true)");
  EXPECT_EQ(with(fused, "")->encode("axyb").value(), (Ids{1, 0, 2}));
}

TEST(Tokenizer, DecodingIgnoresWhatIsNoToken) {
  const Tokenizer tokenizer = test::stories();
  EXPECT_EQ(tokenizer.decode(Ids{399, -1, 1 << 30, 398, 4096}), "Once upon");
  EXPECT_EQ(tokenizer.decode(Ids{}), "");
}

TEST(Tokenizer, HostileFilesAreRefused) {
  const std::string bad[] = {
      "",
      "[]",
      "{}",
      "null",
      "{\"model\": 5}",
      R"({"model": {"type": "WordLevel"}})",
      R"({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 999999999999}, "merges": []}})",
      R"({"model": {"type": "BPE", "vocab": {"a": "b"}, "merges": []}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a a"]}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a"]}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a"]]}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "unk_token": "b"}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "added_tokens": [{"id": -7, "content": "x"}]})",
      R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "normalizer": {"type": "Bogus"}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "pre_tokenizer": {"type": "Split"}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "decoder": {"type": "Strip", "start": -1}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "normalizer": {"type": "Precompiled",
         "precompiled_charsmap": "////////"}})",
      R"({"model": {"type": "Unigram", "vocab": [["a", 0.5], ["b"]]}})",
      R"({"model": {"type": "Unigram", "vocab": [["a", 0.5]], "unk_id": 7}})",
  };
  for (const std::string& json : bad) {
    auto tokenizer = load(json);
    ASSERT_FALSE(tokenizer.ok()) << json;
    EXPECT_FALSE(tokenizer.error().message.empty());
  }
  std::string nested = R"({"type": "NFC"})";
  for (int i = 0; i < 30; ++i) nested = R"({"type": "Sequence", "normalizers": [)" + nested + "]}";
  EXPECT_FALSE(with(kLetters, "\"normalizer\": " + nested).ok());
}

// Steps that could grow a text without bound, each or together, are refused with the numbers before any text is seen:
// four of them made ten gigabytes out of ten letters.
TEST(Tokenizer, GrowthIsBounded) {
  auto replace = [](const std::string& pattern, size_t letters) {
    return R"({"type": "Replace", "pattern": )" + pattern + R"(, "content": ")" + std::string(letters, 'a') + "\"}";
  };
  auto normalizers = [](const std::string& steps) {
    return with(kLetters, R"("normalizer": {"type": "Sequence", "normalizers": [)" + steps + "]}");
  };
  const std::string letter = R"({"String": "a"})", some = R"({"Regex": "x*"})";
  const std::string thousand = replace(letter, 1000);
  const auto four = normalizers(thousand + "," + thousand + "," + thousand + "," + thousand);
  ASSERT_FALSE(four.ok());
  EXPECT_NE(four.error().message.find("4 normalizer steps"), std::string::npos) << four.error().message;
  EXPECT_NE(four.error().message.find("1000000000000 times"), std::string::npos) << four.error().message;
  EXPECT_FALSE(normalizers(replace(some, 1000)).ok());
  EXPECT_FALSE(normalizers(R"({"type": "Prepend", "prepend": ")" + std::string(100, 'a') + "\"}").ok());
  std::string levels = R"({"type": "ByteLevel"})";
  for (int i = 0; i < 10; ++i) levels += R"(, {"type": "ByteLevel"})";
  EXPECT_FALSE(normalizers(levels).ok());
  EXPECT_TRUE(normalizers(replace(letter, 60)).ok());
  EXPECT_TRUE(normalizers(replace(some, 3) + "," + replace(letter, 3) + "," + replace(some, 3)).ok());
  const std::string decoder = R"("decoder": {"type": "Sequence", "decoders": [)" + thousand + "," + thousand + "]}";
  EXPECT_FALSE(with(kLetters, decoder).ok());
}

TEST(Detokenizer, StreamsWhatDecodeGives) {
  std::vector<Tokenizer> tokenizers = {test::stories()};
  for (const std::string& name : test::golden_names()) tokenizers.push_back(test::golden(name));
  std::mt19937 random(4);
  for (const Tokenizer& tokenizer : tokenizers) {
    for (int round = 0; round < 300; ++round) {
      Ids tokens = tokenizer.encode(test::random_text(random), {.parse_special = true}).value();
      // Any order of tokens, so that characters are cut and bytes are wrong.
      if (round % 3 == 0) std::shuffle(tokens.begin(), tokens.end(), random);
      const DecodeOptions options = {.skip_special = round % 2 == 0, .continues = round % 5 == 0};
      Detokenizer stream(tokenizer, options);
      std::string text;
      for (Token token : tokens) {
        const std::string part = stream.push(token);
        EXPECT_TRUE(is_valid_utf8(part));
        text += part;
      }
      text += stream.finish();
      ASSERT_EQ(text, tokenizer.decode(tokens, options));
    }
  }
}

TEST(Detokenizer, HoldsUnfinishedCharacters) {
  const Tokenizer tokenizer = test::stories();
  const Ids tokens = tokenizer.encode("中").value();
  ASSERT_EQ(tokens.size(), 3u);
  Detokenizer stream(tokenizer);
  EXPECT_EQ(stream.push(tokens[0]), "");
  EXPECT_EQ(stream.push(tokens[1]), "");
  EXPECT_EQ(stream.push(tokens[2]), "中");
  EXPECT_EQ(stream.push(tokens[0]), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
}

TEST(Detokenizer, ContinuedTextKeepsItsSpace) {
  const Tokenizer llama = test::golden("llama2");
  const Ids tokens = llama.encode("world").value();
  EXPECT_EQ(llama.decode(tokens), "world");
  EXPECT_EQ(llama.decode(tokens, {.continues = true}), " world");
}

Result<Tokenizer> through_gguf(const Tokenizer& tokenizer, const std::string& name) {
  TRY(GgufVocab vocab, tokenizer.gguf_vocab());
  GgufWriter writer;
  TRY_VOID(writer.put("general.architecture", "llama"));
  TRY_VOID(put_vocab(writer, vocab));
  const auto path = std::filesystem::temp_directory_path() / fmt::format("millrace_vocab_{}_{}.gguf", name, ::getpid());
  TRY_VOID(writer.begin(path));
  TRY_VOID(writer.finish());
  auto checkpoint = Checkpoint::open(path);
  std::filesystem::remove(path);
  if (!checkpoint.ok()) return checkpoint.error();
  return Tokenizer::open(*checkpoint);
}

TEST(Gguf, ExportedTokenizersGiveTheSameIds) {
  std::vector<std::pair<std::string, Tokenizer>> all = {{"stories", test::stories()}};
  for (const std::string& name : test::golden_names()) all.emplace_back(name, test::golden(name));
  for (const auto& [name, tokenizer] : all) {
    auto again = through_gguf(tokenizer, name);
    ASSERT_TRUE(again.ok()) << name << ": " << again.error().message;
    EXPECT_EQ(again->size(), tokenizer.size()) << name;
    if (tokenizer.special().end >= 0) {
      EXPECT_EQ(again->special().end, tokenizer.special().end) << name;
    }
    EXPECT_EQ(Ids(again->ends().begin(), again->ends().end()), Ids(tokenizer.ends().begin(), tokenizer.ends().end()))
        << name;
    std::mt19937 random(5);
    for (int i = 0; i < 400; ++i) {
      const std::string text = test::random_text(random);
      // The format writes spaces in user-defined tokens as spaces, so marks in a text are other tokens there, and runs
      // of spaces are what these tokens are for.
      if (name == "gemma3" && (text.find("▁") != text.npos || text.find("  ") != text.npos)) continue;
      ASSERT_EQ(again->encode(text).value(), tokenizer.encode(text).value()) << name << ": '" << text << "'";
    }
  }
}

TEST(Gguf, NamesOfSplits) {
  EXPECT_EQ(test::golden("llama3").gguf_vocab()->pre, "llama-bpe");
  EXPECT_EQ(test::golden("qwen3").gguf_vocab()->pre, "qwen2");
  EXPECT_EQ(test::golden("qwen3").gguf_vocab()->normalizer, "nfc");
  EXPECT_EQ(test::golden("gpt2").gguf_vocab()->pre, "gpt-2");
  EXPECT_EQ(test::golden("gptoss").gguf_vocab()->pre, "gpt-4o");
  EXPECT_EQ(test::golden("deepseek_v3").gguf_vocab()->pre, "deepseek-v3");
  EXPECT_EQ(test::golden("mistral_nemo").gguf_vocab()->pre, "tekken");
  EXPECT_EQ(test::golden("llama2").gguf_vocab()->model, "llama");
  auto odd = with(kLetters, R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern":
    {"Regex": "odd"}, "behavior": "Isolated", "invert": false}, {"type": "ByteLevel", "add_prefix_space": false,
    "use_regex": false}]})");
  ASSERT_TRUE(odd.ok()) << odd.error().message;
  EXPECT_FALSE(odd->gguf_vocab().ok());
  EXPECT_EQ(test::stories().gguf_vocab(5000)->tokens.size(), 5000u);
  EXPECT_EQ(test::stories().gguf_vocab(5000)->types.back(), static_cast<int32_t>(GgufTokenType::unused));
}

}  // namespace
}  // namespace millrace
