#include "eval/embed_golden.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/file.h"
#include "base/json.h"
#include "model/forward.h"

namespace millrace {
namespace {

Result<std::vector<int32_t>> integers(const Checkpoint& file, std::string_view name, int64_t count) {
  const StoredTensor* tensor = file.find(name);
  if (tensor == nullptr || tensor->type != DType::i32 || tensor->values() != count)
    return error(Code::corrupt, "needs the tensor {} with {} numbers (I32)", name, count);
  std::vector<int32_t> values(static_cast<size_t>(count));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

Result<void> read_texts(const Checkpoint& file, EmbedGolden& golden) {
  const StoredTensor* ids = file.find("input_ids");
  const StoredTensor* expected = file.find(golden.scores ? "scores" : "vectors");
  if (ids == nullptr || ids->shape.size() != 2 || expected == nullptr || expected->values() % ids->shape[0] != 0)
    return error(Code::corrupt, "needs input_ids [texts, longest] and as many vectors or scores");
  const int64_t texts = ids->shape[0], longest = ids->shape[1], width = expected->values() / texts;
  TRY(const std::vector<int32_t> tokens, integers(file, "input_ids", texts * longest));
  TRY(const std::vector<int32_t> lengths, integers(file, "lengths", texts));
  TRY(const std::vector<float> numbers, read_floats(*expected));
  std::vector<int32_t> types;
  if (file.find("token_type_ids") != nullptr) {
    TRY(types, integers(file, "token_type_ids", texts * longest));
  }
  for (int64_t i = 0; i < texts; ++i) {
    const int32_t length = lengths[static_cast<size_t>(i)];
    if (length < 1 || length > longest) return error(Code::corrupt, "text {} has {} tokens of {}", i, length, longest);
    const auto row = tokens.begin() + i * longest;
    EmbedGolden::Text text = {.tokens = {row, row + length}};
    for (int64_t at = 0; !types.empty() && at < length && text.second == 0; ++at)
      if (types[static_cast<size_t>(i * longest + at)] == 1) text.second = static_cast<int32_t>(at);
    text.expected.assign(numbers.begin() + i * width, numbers.begin() + (i + 1) * width);
    golden.texts.push_back(std::move(text));
  }
  return {};
}

// One step after another, as many texts in each as fit, or one.
Result<std::vector<std::vector<float>>> run(Encoder& encoder, const EmbedGolden& golden, bool together) {
  std::vector<Passage> passages;
  for (const EmbedGolden::Text& text : golden.texts) {
    passages.push_back({text.tokens, text.second});
    TRY_VOID(encoder.check(passages.back()));
  }
  std::vector<std::vector<float>> out;
  for (std::span<const Passage> rest = passages; !rest.empty();) {
    const auto now = rest.first(together ? encoder.fitting(rest) : 1);
    rest = rest.subspan(now.size());
    TRY(const Tensor rows, golden.yes >= 0 ? encoder.logits(now) : encoder.run(now));
    for (int64_t r = 0; r < rows.rows; ++r) {
      const float* row = rows.row(r);
      if (golden.yes >= 0) {
        out.push_back({yes_share(row[golden.yes], row[golden.no])});
      } else if (golden.scores) {
        out.push_back({1 / (1 + std::exp(-row[0]))});
      } else {
        out.emplace_back(row, row + rows.cols);
        const auto& pool = encoder.model().spec().pool;
        if (!pool || pool->normalised) normalise(out.back());
      }
    }
  }
  return out;
}

double cosine_of(std::span<const float> a, std::span<const float> b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
}

}  // namespace

bool is_embed_golden(const std::filesystem::path& path) {
  const auto file = Checkpoint::open(path);
  return file.ok() && (file->find("vectors") != nullptr || file->find("scores") != nullptr);
}

Result<EmbedGolden> read_embed_golden(const std::filesystem::path& path) {
  TRY(const Checkpoint file, Checkpoint::open(path));
  EmbedGolden golden = {.scores = file.find("scores") != nullptr};
  auto read = read_texts(file, golden);
  if (!read.ok()) return within(path.string(), std::move(read).error());
  const std::filesystem::path note = path.parent_path() / "case.json";
  std::error_code ignored;
  if (golden.scores && std::filesystem::exists(note, ignored)) {
    TRY(const std::string text, read_file(note));
    TRY(const Json json, parse_json(text));
    TRY(const int64_t yes, get_int(json, "yes", -1));
    TRY(const int64_t no, get_int(json, "no", -1));
    if (yes > INT32_MAX || no > INT32_MAX || (yes < 0) != (no < 0))
      return error(Code::corrupt, "{}: tokens {} and {}", note.string(), yes, no);
    golden.yes = static_cast<Token>(yes);
    golden.no = static_cast<Token>(no);
  }
  return golden;
}

EncoderOptions embed_golden_options(const EmbedGolden& golden) {
  EncoderOptions options = {.context = 1};
  int32_t all = 0;
  for (const EmbedGolden::Text& text : golden.texts) {
    options.context = std::max(options.context, static_cast<int32_t>(text.tokens.size()));
    all += static_cast<int32_t>(text.tokens.size());
  }
  options.rows = all;
  options.logits = golden.yes >= 0;
  return options;
}

Result<EmbedResult> check_embed_golden(Encoder& encoder, const EmbedGolden& golden, GoldenRule rule) {
  const ModelSpec& spec = encoder.model().spec();
  const int32_t width = golden.yes >= 0 ? spec.vocab : encoder.width();
  if (std::max(golden.yes, golden.no) >= spec.vocab || (golden.scores && golden.yes < 0 && width != 1))
    return error(Code::invalid, "the model gives {} numbers, not one score", width);
  TRY(const auto together, run(encoder, golden, true));
  TRY(const auto alone, run(encoder, golden, false));
  EmbedResult result = {.texts = static_cast<int>(together.size())};
  bool same = true;
  for (size_t i = 0; i < together.size(); ++i) {
    const std::vector<float>& expected = golden.texts[i].expected;
    if (together[i].size() != expected.size())
      return error(Code::invalid, "vectors of {} numbers, stored are {}", together[i].size(), expected.size());
    same = same && std::memcmp(together[i].data(), alone[i].data(), expected.size() * sizeof(float)) == 0;
    if (!golden.scores) result.cosine = std::min(result.cosine, cosine_of(together[i], expected));
    for (size_t c = 0; c < expected.size(); ++c) {
      result.difference = std::max(result.difference, std::abs(static_cast<double>(together[i][c]) - expected[c]));
      result.largest = std::max(result.largest, std::abs(static_cast<double>(expected[c])));
      if (!std::isfinite(together[i][c])) result.failure = "a number is NaN or infinite";
    }
  }
  const bool reduced = rule == GoldenRule::reduced;
  const double least = reduced ? 0.999 : 0.9999, most = reduced ? 2e-2 : 1e-3;
  // Cosines do not see a length: vectors are held to it too, more loosely.
  const double allowed = golden.scores ? most : (reduced ? 5e-2 : 1e-3) * result.largest;
  if (!same) result.failure = "other bits in company than alone";
  if (result.failure.empty() && result.cosine < least)
    result.failure = fmt::format("cosine {:.6f}, at least {} wanted", result.cosine, least);
  if (result.failure.empty() && result.difference > allowed)
    result.failure = fmt::format("difference {:.2e}, allowed {:.1e}", result.difference, allowed);
  return result;
}

}  // namespace millrace
