#include "text/tokenizer.h"

#include <algorithm>

#include "text/byte_level.h"
#include "text/detokenizer.h"
#include "text/tokenizer_parts.h"
#include "text/unicode.h"

namespace millrace {
namespace {

constexpr size_t kMostSpaces = 64;          // kept for threads to come
constexpr size_t kLongestPiece = 1u << 28;  // what a model gets at once; offsets in it are 32 bits

// Hands pieces to the model, by way of the cache.
class ModelSink : public PieceSink {
 public:
  ModelSink(const TokenizerParts& parts, TokenizerSpace& space, std::vector<Token>& out)
      : model_(*parts.model), cutter_(parts.cutter), space_(space), out_(out) {}

  void piece(std::string_view text) override {
    if (!cutter_.enabled()) return word(text);
    cutter_.cut(text, [this](std::string_view part) { word(part); });
  }

 private:
  void word(std::string_view text) {
    uint64_t hash = 0;
    if (space_.cache.get(text, &hash, out_)) return;
    while (text.size() > kLongestPiece) {
      size_t cut = kLongestPiece;
      while (!is_char_start(text[cut])) --cut;
      model_.encode(text.substr(0, cut), space_.merge, out_);
      text.remove_prefix(cut);
    }
    const size_t before = out_.size();
    model_.encode(text, space_.merge, out_);
    space_.cache.put(text, hash, std::span(out_).subspan(before));
  }

  const PieceModel& model_;
  const WordCutter& cutter_;
  TokenizerSpace& space_;
  std::vector<Token>& out_;
};

// Working memory for one call.
class Borrowed {
 public:
  explicit Borrowed(const TokenizerParts& parts) : parts_(parts), space_(parts.take_space()) {}
  ~Borrowed() { parts_.give_space(std::move(space_)); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  TokenizerSpace& operator*() { return *space_; }

 private:
  const TokenizerParts& parts_;
  std::unique_ptr<TokenizerSpace> space_;
};

}  // namespace

std::unique_ptr<TokenizerSpace> TokenizerParts::take_space() const {
  {
    std::lock_guard lock(mutex_);
    if (!spaces_.empty()) {
      auto space = std::move(spaces_.back());
      spaces_.pop_back();
      return space;
    }
  }
  return std::make_unique<TokenizerSpace>();
}

void TokenizerParts::give_space(std::unique_ptr<TokenizerSpace> space) const {
  std::lock_guard lock(mutex_);
  if (spaces_.size() < kMostSpaces) spaces_.push_back(std::move(space));
}

std::string_view TokenizerParts::shown_text(Token id) const {
  const auto index = static_cast<size_t>(id);
  if (id >= 0 && index < shown.size() && !shown[index].empty()) return shown[index];
  return vocabulary->text(id);
}

Result<void> TokenizerParts::index_added() {
  is_special.assign(static_cast<size_t>(vocabulary->size()), false);
  RegexScratch scratch;
  for (const AddedToken& token : added) {
    const auto index = static_cast<size_t>(token.id);
    if (token.special) is_special[index] = true;
    if (!token.normalized) {
      TRY_VOID(raw_added.add(token, token.text));
      continue;
    }
    std::string normal = token.text;
    bool at_start = true;
    scratch.reset(normal.size());
    GrowthBudget budget(normal.size(), AddedTokens::kLongest);
    TRY_VOID(normalizer.run(normal, &at_start, scratch, budget));
    TRY_VOID(scratch.status());
    TRY_VOID(normalized_added.add(token, normal));
    if (normal != token.text) {
      shown.resize(static_cast<size_t>(vocabulary->size()));
      shown[index] = normal;
    }
  }
  return {};
}

Tokenizer TokenizerParts::finish(std::unique_ptr<TokenizerParts> parts) {
  std::sort(parts->ends.begin(), parts->ends.end());
  parts->ends.erase(std::unique(parts->ends.begin(), parts->ends.end()), parts->ends.end());
  return Tokenizer(std::shared_ptr<const TokenizerParts>(std::move(parts)));
}

Result<void> TokenizerParts::encode_text(std::string_view text, bool at_start, TokenizerSpace& space,
                                         GrowthBudget& budget, std::vector<Token>& out) const {
  if (!normalizer.empty()) {
    space.text.assign(text);
    TRY_VOID(normalizer.run(space.text, &at_start, space.regex, budget));
    text = space.text;
  }
  ModelSink sink(*this, space, out);
  auto encode_part = [&](std::string_view part, bool first) -> Result<void> {
    if (!pre.empty()) return pre.run(part, first, space.regex, budget, sink);
    if (!part.empty()) sink.piece(part);
    return {};
  };
  if (normalized_added.empty()) return encode_part(text, at_start);
  Result<void> status;
  const bool specials = space.specials;
  normalized_added.find(text, specials, [&](size_t begin, size_t end, Token id) {
    if (id != kNoToken) {
      out.push_back(id);
    } else if (status.ok()) {
      status = encode_part(text.substr(begin, end - begin), at_start && begin == 0);
    }
  });
  return status;
}

Result<std::vector<Token>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  const TokenizerParts& parts = *parts_;
  Borrowed borrowed(parts);
  TokenizerSpace& space = *borrowed;
  space.specials = options.parse_special;
  std::string repaired;
  if (!is_valid_utf8(text)) {
    append_valid_utf8(repaired, text);
    text = repaired;
  }
  space.regex.reset(text.size());
  GrowthBudget budget(text.size());
  std::vector<Token> out;
  out.reserve(text.size() / 4 + 8);
  if (options.add_special) out = parts.prefix;
  if (parts.raw_added.empty()) {
    TRY_VOID(parts.encode_text(text, true, space, budget, out));
  } else {
    Result<void> status;
    parts.raw_added.find(text, options.parse_special, [&](size_t begin, size_t end, Token id) {
      if (id != kNoToken) {
        out.push_back(id);
      } else if (status.ok()) {
        status = parts.encode_text(text.substr(begin, end - begin), begin == 0, space, budget, out);
      }
    });
    TRY_VOID(status);
  }
  TRY_VOID(space.regex.status());
  if (options.add_special) out.insert(out.end(), parts.suffix.begin(), parts.suffix.end());
  return out;
}

Result<EncodedPair> Tokenizer::encode_pair(std::string_view first, std::string_view second, size_t most) const {
  const std::vector<PairPart>& layout = parts_->pair;
  if (layout.empty()) return error(Code::unsupported, "the tokenizer does not say how two texts go together");
  std::vector<Token> texts[2];
  TRY(texts[0], encode(first));
  TRY(texts[1], encode(second));
  size_t fixed = 0;
  for (const PairPart& part : layout) fixed += part.text == 0;
  while (most > 0 && fixed + texts[0].size() + texts[1].size() > most && !(texts[0].empty() && texts[1].empty()))
    texts[texts[0].size() > texts[1].size() ? 0 : 1].pop_back();
  EncodedPair out;
  for (const PairPart& part : layout) {
    if (part.second && out.second == 0) out.second = out.tokens.size();
    if (part.text == 0) {
      out.tokens.push_back(part.token);
    } else {
      const std::vector<Token>& text = texts[part.text - 1];
      out.tokens.insert(out.tokens.end(), text.begin(), text.end());
    }
  }
  return out;
}

std::string Tokenizer::decode(std::span<const Token> tokens, DecodeOptions options) const {
  Detokenizer detokenizer(*this, options);
  std::string out;
  for (Token token : tokens) detokenizer.push(token, out);
  return out += detokenizer.finish();
}

Token Tokenizer::size() const { return parts_->vocabulary->size(); }
std::string_view Tokenizer::token_text(Token id) const { return parts_->vocabulary->text(id); }

std::string Tokenizer::token_bytes(Token id) const {
  const TokenizerParts& parts = *parts_;
  std::string_view text = parts.shown_text(id);
  if (text.empty()) return {};
  if (parts.decoder.has_byte_level()) {
    std::optional<std::string> bytes = from_byte_level(text);
    return bytes ? *bytes : std::string(text);
  }
  if (parts.decoder.has_byte_fallback() && text.size() == 6 && text.starts_with("<0x") && text.ends_with(">")) {
    unsigned value = 0;
    const bool hex = std::sscanf(std::string(text).c_str(), "<0x%2X>", &value) == 1;
    if (hex) return std::string(1, static_cast<char>(value));
  }
  return decode(std::span(&id, 1), {.skip_special = false, .continues = true});
}

std::optional<Token> Tokenizer::token_to_id(std::string_view text) const {
  Token id = parts_->vocabulary->find(text);
  return id == kNoToken ? std::nullopt : std::optional<Token>(id);
}

bool Tokenizer::is_special(Token id) const {
  return id >= 0 && static_cast<size_t>(id) < parts_->is_special.size() && parts_->is_special[static_cast<size_t>(id)];
}

const SpecialTokens& Tokenizer::special() const { return parts_->special; }
std::span<const Token> Tokenizer::ends() const { return parts_->ends; }
bool Tokenizer::is_end(Token id) const { return std::binary_search(parts_->ends.begin(), parts_->ends.end(), id); }

Detokenizer::Detokenizer(const Tokenizer& tokenizer, DecodeOptions options)
    : parts_(tokenizer.parts_),
      skip_special_(options.skip_special),
      stream_(tokenizer.parts_->decoder.start(options.continues)) {}

void Detokenizer::push(Token token, std::string& out) {
  if (!parts_->vocabulary->has(token)) return;
  if (skip_special_ && parts_->skipped(token)) return;
  stream_.push(parts_->shown_text(token), out);
}

std::string Detokenizer::push(Token token) {
  std::string out;
  push(token, out);
  return out;
}

std::string Detokenizer::finish() {
  std::string out;
  stream_.finish(out);
  return out;
}

}  // namespace millrace
