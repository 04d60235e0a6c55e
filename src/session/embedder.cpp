#include "session/embedder.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

Scoring scoring_of(const ModelSpec& spec) {
  if (spec.pool && spec.pool->scores) return Scoring::classifier;
  return spec.pool || !spec.head ? Scoring::cosine : Scoring::yes_no;
}

Error no_text(const LoadedModel& model) {
  return error(Code::unsupported, "no tokenizer: {}", model.tokenizer_error());
}

}  // namespace

std::string_view scoring_name(Scoring scoring) {
  switch (scoring) {
    case Scoring::classifier:
      return "classifier";
    case Scoring::yes_no:
      return "yes or no";
    case Scoring::cosine:
      return "cosine";
  }
  return "";
}

Result<std::unique_ptr<Embedder>> Embedder::create(LoadedModel& model, EncoderOptions options, bool scores) {
  const ModelSpec& spec = model.model().spec();
  const Scoring scoring = scoring_of(spec);
  options.logits = scores && scoring == Scoring::yes_no;
  // As long as the files say texts should be, where they do.
  if (auto most = get_int(model.checkpoint().sentence_limits(), "max_seq_length", 0);
      options.context == 0 && most.ok() && *most > 0) {
    options.context =
        static_cast<int32_t>(std::min<int64_t>({*most, spec.context, int64_t{EncoderOptions::kMostContext}}));
  }
  TRY(auto encoder, Encoder::create(model.model(), model.backend(), options));
  std::unique_ptr<Embedder> embedder(new Embedder(model, std::move(encoder), scoring));
  if (scores && scoring == Scoring::classifier && embedder->encoder_->width() != 1) {
    return error(Code::unsupported, "the model's classifier has {} labels; a score needs one",
                 embedder->encoder_->width());
  }
  if (options.logits) TRY_VOID(embedder->find_answers());
  return embedder;
}

bool Embedder::normalised() const {
  const auto& pool = model_.model().spec().pool;
  return !pool || (pool->normalised && !pool->scores);
}

Result<std::string> Embedder::prompt_named(std::string_view name) const {
  const Json* prompts = find(model_.checkpoint().sentence_config(), "prompts");
  const Json* found = prompts != nullptr ? find(*prompts, name) : nullptr;
  if (found != nullptr && found->is_string()) return std::string(found->get_string());
  std::string names;
  if (prompts != nullptr && prompts->is_object()) {
    for (const auto& entry : prompts->get_object()) {
      if (!names.empty()) names += ", ";
      names += std::string_view(entry.key());
    }
  }
  return error(Code::not_found, "the model has no prompt '{}'; it has {}", name, names.empty() ? "none" : names);
}

Result<EncodeInput> Embedder::input(std::vector<Token> tokens) const {
  EncodeInput out = {.tokens = std::move(tokens)};
  TRY_VOID(encoder_->check(out.passage()));
  return out;
}

Result<void> Embedder::check_dimensions(int64_t dimensions) const {
  if (dimensions >= 0 && dimensions <= encoder_->width()) return {};
  return error(Code::invalid, "{} dimensions, but the model's vectors have {}", dimensions, encoder_->width());
}

#if MILLRACE_SESSION_TEXT

Result<EncodeInput> Embedder::input(std::string_view text, const EmbedText& how) const {
  const Tokenizer* tokenizer = model_.tokenizer();
  if (tokenizer == nullptr) return no_text(model_);
  TRY(std::vector<Token> tokens, tokenizer->encode(std::string(how.prompt) + std::string(text), {.add_special = true}));
  const auto most = static_cast<size_t>(encoder_->options().context);
  if (how.truncate && tokens.size() > most) {
    // What stands at the end of every text stays there.
    TRY(const std::vector<Token> ends, tokenizer->encode("", {.add_special = true}));
    size_t kept = 0;
    while (kept < std::min(ends.size(), most) && ends[ends.size() - 1 - kept] == tokens[tokens.size() - 1 - kept])
      ++kept;
    tokens.erase(tokens.begin() + static_cast<ptrdiff_t>(most - kept), tokens.end() - static_cast<ptrdiff_t>(kept));
  }
  return input(std::move(tokens));
}

// As Qwen3-Reranker's makers ask it.
Result<EncodeInput> Embedder::question(std::string_view first, std::string_view second, bool truncate,
                                       std::string_view instruction) const {
  constexpr std::string_view kBefore =
      "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
      "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n";
  constexpr std::string_view kAfter = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
  const Tokenizer& tokenizer = *model_.tokenizer();
  TRY(std::vector<Token> tokens, tokenizer.encode(kBefore, {.parse_special = true}));
  TRY(std::vector<Token> body,
      tokenizer.encode(fmt::format("<Instruct>: {}\n<Query>: {}\n<Document>: {}", instruction, first, second)));
  TRY(const std::vector<Token> after, tokenizer.encode(kAfter, {.parse_special = true}));
  const auto most = static_cast<size_t>(encoder_->options().context);
  const size_t fixed = tokens.size() + after.size();
  if (truncate && fixed < most && body.size() > most - fixed) body.resize(most - fixed);
  tokens.insert(tokens.end(), body.begin(), body.end());
  tokens.insert(tokens.end(), after.begin(), after.end());
  return input(std::move(tokens));
}

Result<std::vector<EncodeInput>> Embedder::pair(std::string_view first, std::string_view second, bool truncate,
                                                std::string_view instruction) const {
  if (model_.tokenizer() == nullptr) return no_text(model_);
  std::vector<EncodeInput> out;
  if (scoring_ == Scoring::cosine) {
    for (std::string_view text : {first, second}) {
      TRY(EncodeInput one, input(text, {.truncate = truncate}));
      out.push_back(std::move(one));
    }
    return out;
  }
  EncodeInput one;
  if (scoring_ == Scoring::yes_no) {
    TRY(one, question(first, second, truncate, instruction));
  } else {
    const auto most = static_cast<size_t>(encoder_->options().context);
    TRY(EncodedPair both, model_.tokenizer()->encode_pair(first, second, truncate ? most : 0));
    one.tokens = std::move(both.tokens);
    if (model_.model().spec().token_types > 1) one.second = static_cast<int32_t>(both.second);
    TRY_VOID(encoder_->check(one.passage()));
  }
  out.push_back(std::move(one));
  return out;
}

Result<void> Embedder::find_answers() {
  const Tokenizer* tokenizer = model_.tokenizer();
  if (tokenizer == nullptr) return no_text(model_);
  TRY(const auto yes, tokenizer->encode("yes"));
  TRY(const auto no, tokenizer->encode("no"));
  if (yes.size() != 1 || no.size() != 1) {
    return error(Code::unsupported,
                 "the model has no classifier, and its tokenizer has no single tokens for yes and no: it cannot score");
  }
  yes_ = yes[0];
  no_ = no[0];
  return {};
}

#else

Result<EncodeInput> Embedder::input(std::string_view, const EmbedText&) const { return no_text(model_); }
Result<std::vector<EncodeInput>> Embedder::pair(std::string_view, std::string_view, bool, std::string_view) const {
  return no_text(model_);
}
Result<EncodeInput> Embedder::question(std::string_view, std::string_view, bool, std::string_view) const {
  return no_text(model_);
}
Result<void> Embedder::find_answers() { return no_text(model_); }

#endif

Result<std::vector<std::vector<float>>> Embedder::rows(std::span<const EncodeInput> inputs) {
  const bool logits = encoder_->options().logits;
  std::vector<Passage> passages;
  for (const EncodeInput& each : inputs) passages.push_back(each.passage());
  std::vector<std::vector<float>> out;
  for (std::span<const Passage> rest = passages; !rest.empty();) {
    const auto now = rest.first(encoder_->fitting(rest));
    rest = rest.subspan(now.size());
    TRY(const Tensor rows, logits ? encoder_->logits(now) : encoder_->run(now));
    for (int64_t r = 0; r < rows.rows; ++r) {
      const float* row = rows.row(r);
      if (logits) {
        out.push_back({row[yes_], row[no_]});
      } else {
        out.emplace_back(row, row + rows.cols);
      }
      for (const float value : out.back())
        if (!std::isfinite(value)) return error(Code::internal, "a vector has a number that is NaN or infinite");
    }
  }
  return out;
}

void Embedder::finish(std::vector<float>& vector, int32_t dimensions) const {
  if (dimensions > 0 && static_cast<size_t>(dimensions) < vector.size()) vector.resize(static_cast<size_t>(dimensions));
  if (normalised()) normalise(vector);
}

Result<std::vector<std::vector<float>>> Embedder::vectors(std::span<const EncodeInput> inputs, int32_t dimensions) {
  TRY_VOID(check_dimensions(dimensions));
  TRY(auto out, rows(inputs));
  for (std::vector<float>& vector : out) finish(vector, dimensions);
  return out;
}

std::vector<float> Embedder::scores_of(std::vector<std::vector<float>> rows) const {
  std::vector<float> out;
  if (scoring_ != Scoring::cosine) {
    for (const auto& row : rows)
      out.push_back(scoring_ == Scoring::yes_no ? yes_share(row[0], row[1]) : yes_share(row[0], 0));
    return out;
  }
  for (size_t i = 0; i + 1 < rows.size(); i += 2) {
    normalise(rows[i]);
    normalise(rows[i + 1]);
    double sum = 0;
    for (size_t c = 0; c < rows[i].size(); ++c) sum += static_cast<double>(rows[i][c]) * rows[i + 1][c];
    out.push_back(static_cast<float>(sum));
  }
  return out;
}

Result<std::vector<float>> Embedder::scores(std::span<const std::vector<EncodeInput>> pairs) {
  std::vector<EncodeInput> inputs;
  for (const auto& pair : pairs) inputs.insert(inputs.end(), pair.begin(), pair.end());
  TRY(auto found, rows(inputs));
  return scores_of(std::move(found));
}

}  // namespace millrace
