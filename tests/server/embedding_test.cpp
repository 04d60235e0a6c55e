// Vectors and scores over HTTP, with small encoders whose vectors another implementation stored.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "server/rig.h"

namespace millrace::testing {
namespace {

namespace fs = std::filesystem;

#if MILLRACE_SESSION_TEXT

// A copy of a golden with a list of words, as its makers did not store one.
fs::path with_words(const std::string& name) {
  const fs::path from = fs::path(MILLRACE_SOURCE_DIR) / "tests/eval/embed" / name;
  const fs::path to = fs::path(::testing::TempDir()) / ("millrace-embed-" + name);
  fs::remove_all(to);
  fs::copy(from, to, fs::copy_options::recursive);
  std::ofstream words(to / "vocab.txt");
  words << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\nworld\nfast\nfox\n";
  for (int i = 9; i < 320; ++i) words << "word" << i << "\n";
  return to;
}

ServedModel served_encoder(const std::string& name) {
  LoadChoice choice{.path = with_words(name)};
  choice.cpu.threads = 1;
  choice.cpu.activations = Activations::float32;
  ServedModel served{.name = "small", .fingerprint = "fp_test", .loaded = LoadedModel::load(choice).value()};
  EncoderOptions options = {.sequences = 4, .kv = DType::f32};
  served.embeds = std::make_unique<EmbedQueue>(Embedder::create(*served.loaded, options).value(), 64);
  return served;
}

std::vector<float> numbers(const Json& list) {
  std::vector<float> out;
  for (const Json& each : list.as_array()) out.push_back(each.to_number<float>());
  return out;
}

std::vector<float> from_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(kDigits.find(c));
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes += static_cast<char>(bits >> held & 255);
  }
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
  return out;
}

TEST(Embeddings, VectorsOfTextsAndTokens) {
  Rig rig({}, served_encoder("bert-mean-dense"));
  const Response response = rig.post("/v1/embeddings", R"({"input": ["hello world", "fast fox"], "model": "small"})");
  ASSERT_EQ(response.status, 200) << response.body;
  const std::vector<float> first = numbers(at(response.json(), "data", 0, "embedding"));
  ASSERT_EQ(first.size(), 48u);
  double square = 0;
  for (const float value : first) square += static_cast<double>(value) * value;
  EXPECT_NEAR(square, 1, 1e-5);
  EXPECT_EQ(at(response.json(), "usage", "prompt_tokens"), Json(8));
  // The same text as tokens, alone, and in base64.
  const Response ids = rig.post("/v1/embeddings", R"({"input": [2, 5, 6, 3], "encoding_format": "base64"})");
  ASSERT_EQ(ids.status, 200) << ids.body;
  EXPECT_EQ(from_base64(text_of(at(ids.json(), "data", 0, "embedding"))), first);
  const Response fewer = rig.post("/v1/embeddings", R"({"input": "hello world", "dimensions": 8})");
  ASSERT_EQ(fewer.status, 200) << fewer.body;
  const std::vector<float> eight = numbers(at(fewer.json(), "data", 0, "embedding"));
  ASSERT_EQ(eight.size(), 8u);
  EXPECT_NEAR(eight[1] / eight[0], first[1] / first[0], 1e-3);
}

TEST(Embeddings, WhatCannotBeIsRefusedWithAReason) {
  Rig rig({}, served_encoder("bert-mean-dense"));
  for (const char* body : {R"({})", R"({"input": []})", R"({"input": [[]]})", R"({"input": [1, 400]})",
                           R"({"input": 5})", R"({"input": "hello", "dimensions": 49})", R"({"input": [1, -1]})",
                           R"({"input": "hello", "encoding_format": "hex"})"})
    EXPECT_EQ(rig.post("/v1/embeddings", body).status, 400) << body;
  EXPECT_EQ(rig.post("/v1/embeddings", R"({"input": "hello", "model": "other"})").status, 404);
  EXPECT_EQ(rig.post("/v1/completions", R"({"prompt": "hello"})").status, 400);
  EXPECT_EQ(rig.get("/live").status, 400);
  for (const char* path : {"/health", "/ready", "/v1/models", "/props", "/metrics"})
    EXPECT_EQ(rig.get(path).status, 200) << path;
  std::string long_text = "hello";
  for (int i = 0; i < 200; ++i) long_text += " hello";
  const std::string body = R"({"input": ")" + long_text + "\"";
  EXPECT_EQ(rig.post("/v1/embeddings", body + "}").status, 400);
  EXPECT_EQ(rig.post("/v1/embeddings", body + R"(, "truncate": true})").status, 200);
  Rig writer;
  EXPECT_EQ(writer.post("/v1/embeddings", R"({"input": "hello"})").status, 400);
}

TEST(Embeddings, RerankAndScoreAgree) {
  Rig rig({}, served_encoder("bert-reranker"));
  const Response ranked =
      rig.post("/v1/rerank",
               R"({"query": "hello", "documents": ["world", {"text": "fast fox"}, "fox"], "return_documents": true})");
  ASSERT_EQ(ranked.status, 200) << ranked.body;
  const Response scored = rig.post("/score", R"({"text_1": "hello", "text_2": ["world", "fast fox", "fox"]})");
  ASSERT_EQ(scored.status, 200) << scored.body;
  double before = 2;
  for (int i = 0; i < 3; ++i) {
    const double score = at(ranked.json(), "results", i, "relevance_score").to_number<double>();
    const auto index = static_cast<int>(at(ranked.json(), "results", i, "index").to_number<int64_t>());
    EXPECT_LE(score, before);
    EXPECT_EQ(at(scored.json(), "data", index, "score").to_number<double>(), score);
    before = score;
  }
  const Response best = rig.post("/rerank", R"({"query": "hello", "documents": ["world", "fox"], "top_n": 1})");
  EXPECT_EQ(at(best.json(), "results").as_array().size(), 1u);
  EXPECT_EQ(rig.post("/v1/rerank", R"({"query": "hello"})").status, 400);
  EXPECT_EQ(rig.post("/score", R"({"text_1": ["a", "b"], "text_2": ["a", "b", "c"]})").status, 400);
  EXPECT_EQ(rig.post("/v1/embeddings", R"({"input": "hello"})").status, 400);
}

#endif

}  // namespace
}  // namespace millrace::testing
