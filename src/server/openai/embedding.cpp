#include "server/openai/embedding.h"

#include <algorithm>
#include <numeric>

#include "server/openai/bodies.h"
#include "server/openai/read_request.h"

namespace millrace {
namespace {

constexpr size_t kMostTexts = 2048;  // of one request

std::string in_base64(std::span<const float> numbers) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto bytes = std::as_bytes(numbers);
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t j = 0; j < 3; ++j)
      three = three << 8 | (i + j < bytes.size() ? static_cast<uint32_t>(bytes[i + j]) : 0);
    for (int j = 0; j < 4; ++j)
      out += i + static_cast<size_t>(j) <= bytes.size() ? kDigits[three >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

// The texts of a field: one text, a list of texts, or a list of objects with a text.
std::optional<ApiError> read_texts(const JsonObject& body, std::string_view name, std::vector<std::string>& out) {
  const Json* value = find(body, name);
  if (value == nullptr) return bad_field(name, fmt::format("'{}' is needed: a text or a list of texts", name));
  auto add = [&](const Json& one) {
    const Json* text = one.is_object() ? find(one, "text") : &one;
    if (text == nullptr || !text->is_string()) return false;
    out.emplace_back(text->get_string());
    return true;
  };
  const auto* list = value->if_array();
  bool fine = list != nullptr || add(*value);
  if (list != nullptr && list->size() > kMostTexts)
    return bad_field(name, fmt::format("'{}' has {} texts; at most {} are taken", name, list->size(), kMostTexts));
  for (size_t i = 0; list != nullptr && fine && i < list->size(); ++i) fine = add((*list)[i]);
  if (!fine) return bad_field(name, fmt::format("'{}' should be a text or a list of texts", name));
  if (out.empty()) return bad_field(name, fmt::format("'{}' is empty", name));
  return {};
}

std::optional<ApiError> bad_text(std::string_view field, size_t index, const Error& failure) {
  return bad_field(field, fmt::format("text {} of '{}': {}", index, field, failure.message));
}

// Lists of token ids, or one list of them.
bool is_tokens(const Json& value) {
  const auto* list = value.if_array();
  return list != nullptr && !list->empty() && (list->front().is_number() || list->front().is_array());
}

std::optional<ApiError> read_inputs(const Embedder& embedder, const JsonObject& body, const VectorsAsked& asked,
                                    EmbedWork& out) {
  const Json* input = find(body, asked.field);
  std::vector<Result<EncodeInput>> read;
  if (input != nullptr && is_tokens(*input)) {
    JsonArray lists = input->get_array().front().is_array() ? input->get_array() : JsonArray{*input};
    if (lists.size() > kMostTexts) return bad_field(asked.field, fmt::format("at most {} texts are taken", kMostTexts));
    for (const Json& list : lists) {
      std::vector<Token> tokens;
      const auto* ids = list.if_array();
      for (size_t i = 0; ids != nullptr && i < ids->size(); ++i)
        tokens.push_back((*ids)[i].is_int64() && (*ids)[i].get_int64() <= INT32_MAX && (*ids)[i].get_int64() >= 0
                             ? static_cast<Token>((*ids)[i].get_int64())
                             : -1);
      read.push_back(embedder.input(std::move(tokens)));
    }
  } else {
    std::vector<std::string> texts;
    if (auto failure = read_texts(body, asked.field, texts)) return failure;
    for (const std::string& text : texts) read.push_back(embedder.input(text, {.truncate = asked.truncate}));
  }
  for (size_t i = 0; i < read.size(); ++i) {
    if (!read[i].ok()) return bad_text(asked.field, i, read[i].error());
    out.inputs.push_back(std::move(*read[i]));
  }
  return {};
}

bool flag(const JsonObject& body, std::string_view name) {
  const Json* value = find(body, name);
  return value != nullptr && value->is_bool() && value->get_bool();
}

int32_t integer(const JsonObject& body, std::string_view name) {
  const Json* value = find(body, name);
  return value != nullptr ? static_cast<int32_t>(value->to_number<double>()) : 0;
}

std::string text(const JsonObject& body, std::string_view name) {
  const Json* value = find(body, name);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

std::optional<ApiError> begin(const EmbedSetting& setting, const HttpRequest& request, Body kind, JsonObject& body,
                              EmbedWork& out) {
  Ignored ignored;
  if (auto failure = read_body(request.body, kind, setting.limits, body, ignored)) return failure;
  HttpAnswer noted;
  add_ignored(ignored, noted);
  out.headers = std::move(noted.headers);
  out.model = text(body, "model");
  return {};
}

void count_tokens(EmbedWork& out) {
  for (const EncodeInput& each : out.inputs) out.tokens += static_cast<int64_t>(each.tokens.size());
}

// Scores of pairs, whichever way they are to be written.
std::optional<ApiError> read_pairs(const EmbedSetting& setting, const std::vector<std::string>& firsts,
                                   const std::vector<std::string>& seconds, std::string_view field, bool truncate,
                                   EmbedWork& out) {
  const Embedder& embedder = *setting.embedder;
  if (embedder.scoring() == Scoring::classifier && embedder.encoder().width() != 1) {
    return ApiError{
        .message = fmt::format("the model's classifier has {} labels; a score needs one", embedder.encoder().width()),
        .code = "unsupported"};
  }
  for (size_t i = 0; i < seconds.size(); ++i) {
    auto pair = embedder.pair(firsts[firsts.size() == 1 ? 0 : i], seconds[i], truncate);
    if (!pair.ok()) return bad_text(field, i, pair.error());
    for (EncodeInput& each : *pair) out.inputs.push_back(std::move(each));
  }
  count_tokens(out);
  return {};
}

}  // namespace

void append_vector(std::string& out, const std::vector<float>& vector, bool base64) {
  if (base64) {
    out += '"' + in_base64(vector) + '"';
    return;
  }
  out += '[';
  for (size_t i = 0; i < vector.size(); ++i)
    fmt::format_to(std::back_inserter(out), "{}{:.9g}", i > 0 ? "," : "", vector[i]);
  out += ']';
}

std::optional<ApiError> read_vector_inputs(const EmbedSetting& setting, const JsonObject& body,
                                           const VectorsAsked& asked, EmbedWork& out) {
  const Embedder& embedder = *setting.embedder;
  if (embedder.scoring() == Scoring::classifier)
    return ApiError{.message = "the model scores texts and gives no vectors; use /v1/rerank or /score",
                    .code = "unsupported"};
  if (auto fits = embedder.check_dimensions(asked.dimensions); !fits.ok())
    return bad_field("dimensions", fits.error().message);
  if (auto failure = read_inputs(embedder, body, asked, out)) return failure;
  count_tokens(out);
  return {};
}

std::optional<ApiError> read_embeddings(const EmbedSetting& setting, const HttpRequest& request, EmbedWork& out) {
  JsonObject body;
  if (auto failure = begin(setting, request, kEmbed, body, out)) return failure;
  const Embedder& embedder = *setting.embedder;
  const int32_t dimensions = integer(body, "dimensions");
  if (auto failure = read_vector_inputs(setting, body, {"input", flag(body, "truncate"), dimensions}, out))
    return failure;
  const bool base64 = text(body, "encoding_format") == "base64";
  out.answer = [&embedder, base64, dimensions, tokens = out.tokens,
                name = setting.name](std::vector<std::vector<float>> rows) {
    std::string list;
    for (size_t i = 0; i < rows.size(); ++i) {
      embedder.finish(rows[i], dimensions);
      fmt::format_to(std::back_inserter(list), R"({}{{"object":"embedding","index":{},"embedding":)", i > 0 ? "," : "",
                     i);
      append_vector(list, rows[i], base64);
      list += '}';
    }
    return fmt::format(R"({{"object":"list","data":[{}],"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})",
                       list, to_text(Json(boost::json::string(name))), tokens, tokens);
  };
  return {};
}

std::optional<ApiError> read_rerank(const EmbedSetting& setting, const HttpRequest& request, EmbedWork& out) {
  JsonObject body;
  if (auto failure = begin(setting, request, kRerank, body, out)) return failure;
  std::vector<std::string> documents;
  if (auto failure = read_texts(body, "documents", documents)) return failure;
  if (auto failure = read_pairs(setting, {text(body, "query")}, documents, "documents", flag(body, "truncate"), out))
    return failure;
  const auto asked = static_cast<size_t>(std::max(0, integer(body, "top_n")));
  const size_t most = asked > 0 ? std::min(asked, documents.size()) : documents.size();
  if (!flag(body, "return_documents")) documents.clear();
  out.answer = [embedder = setting.embedder, most, documents, tokens = out.tokens,
                name = setting.name](std::vector<std::vector<float>> rows) {
    const std::vector<float> scores = embedder->scores_of(std::move(rows));
    std::vector<size_t> order(scores.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    order.resize(std::min(most, order.size()));
    JsonArray results;
    for (size_t index : order) {
      JsonObject one = {{"index", index}, {"relevance_score", scores[index]}};
      if (!documents.empty()) one["document"] = JsonObject{{"text", documents[index]}};
      results.push_back(std::move(one));
    }
    return to_text(
        JsonObject{{"model", name}, {"results", std::move(results)}, {"usage", JsonObject{{"total_tokens", tokens}}}});
  };
  return {};
}

std::optional<ApiError> read_score(const EmbedSetting& setting, const HttpRequest& request, EmbedWork& out) {
  JsonObject body;
  if (auto failure = begin(setting, request, kScore, body, out)) return failure;
  std::vector<std::string> firsts, seconds;
  if (auto failure = read_texts(body, "text_1", firsts)) return failure;
  if (auto failure = read_texts(body, "text_2", seconds)) return failure;
  if (firsts.size() != 1 && firsts.size() != seconds.size()) {
    return bad_field(
        "text_1", fmt::format("'text_1' has {} texts and 'text_2' {}: as many, or one", firsts.size(), seconds.size()));
  }
  if (auto failure = read_pairs(setting, firsts, seconds, "text_2", flag(body, "truncate"), out)) return failure;
  out.answer = [embedder = setting.embedder, tokens = out.tokens,
                name = setting.name](std::vector<std::vector<float>> rows) {
    JsonArray data;
    for (const float score : embedder->scores_of(std::move(rows)))
      data.push_back(JsonObject{{"index", data.size()}, {"object", "score"}, {"score", score}});
    return to_text(JsonObject{{"object", "list"},
                              {"model", name},
                              {"data", std::move(data)},
                              {"usage", JsonObject{{"prompt_tokens", tokens}, {"total_tokens", tokens}}}});
  };
  return {};
}

}  // namespace millrace
