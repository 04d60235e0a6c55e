// Tokenizers from the metadata of a GGUF file, as llama.cpp reads it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/file.h"
#include "tensor/side_file.h"
#include "text/byte_level.h"
#include "text/gguf_pre.h"
#include "text/merge_reader.h"
#include "text/spm_unigram.h"
#include "text/tokenizer_parts.h"
#include "text/unicode.h"
#include "text/word_piece.h"

namespace millrace {
namespace {

constexpr std::string_view kMark = "\xE2\x96\x81";  // how SentencePiece writes a space
using Type = GgufTokenType;

class Loader {
 public:
  explicit Loader(const Metadata& metadata) : meta_(metadata), parts_(std::make_unique<TokenizerParts>()) {}

  Result<Tokenizer> run() {
    TRY(std::string model, meta_.get_string("tokenizer.ggml.model", ""));
    if (model.empty()) {
      return error(Code::not_found, "the file has no tokenizer (tokenizer.ggml.model); use one with a vocabulary");
    }
    TRY_VOID(load_vocabulary());
    TRY_VOID(load_ids(model));
    if (model == "gpt2" || model == "gemma4") {
      TRY_VOID(load_bpe(model));
    } else if (model == "llama") {
      TRY_VOID(load_score_bpe());
    } else if (model == "t5") {
      TRY_VOID(load_unigram());
    } else if (model == "bert") {
      TRY_VOID(load_word_piece());
    } else {
      return error(Code::unsupported, "the tokenizer model '{}' is not supported; gpt2, llama, t5, bert and gemma4 are",
                   model);
    }
    parts_->vocabulary = vocabulary_;
    TRY_VOID(load_added());
    TRY_VOID(parts_->index_added());
    SpecialTokens& special = parts_->special;
    special.wants_begin = special.add_begin && special.begin != kNoToken;
    if (special.wants_begin) parts_->prefix.push_back(special.begin);
    if (special.add_end && special.end != kNoToken) parts_->suffix.push_back(special.end);
    load_pair(model == "bert");
    find_special_by_text(*parts_);
    return TokenizerParts::finish(std::move(parts_));
  }

 private:
  Result<void> load_vocabulary() {
    const MetaArray* list = meta_.find_array("tokenizer.ggml.tokens");
    if (list == nullptr) return error(Code::not_found, "the file has no list of tokens (tokenizer.ggml.tokens)");
    TRY(auto texts, list->strings());
    if (texts.size() > static_cast<size_t>(kMostTokens))
      return error(Code::invalid, "{} tokens are too many", texts.size());
    vocabulary_ = std::make_shared<Vocabulary>();
    vocabulary_->reserve(texts.size(), 0);
    for (size_t i = 0; i < texts.size(); ++i) {
      std::string repaired;
      if (texts[i].empty()) repaired = fmt::format("[EMPTY_{}]", i);
      if (!is_valid_utf8(texts[i])) append_valid_utf8(repaired, texts[i]);
      TRY_VOID(vocabulary_->add(repaired.empty() ? texts[i] : std::string_view(repaired), static_cast<Token>(i)));
    }
    types_.assign(texts.size(), Type::normal);
    if (const MetaArray* types = meta_.find_array("tokenizer.ggml.token_type")) {
      TRY(auto numbers, types->integers());
      if (numbers.size() < types_.size()) {
        return error(Code::corrupt, "there are {} tokens, but {} token types", types_.size(), numbers.size());
      }
      for (size_t i = 0; i < types_.size(); ++i) {
        if (numbers[i] >= 1 && numbers[i] <= 6) types_[i] = static_cast<Type>(numbers[i]);
      }
    }
    if (const MetaArray* scores = meta_.find_array("tokenizer.ggml.scores")) {
      TRY(parts_->scores, scores->floats());
      if (parts_->scores.size() < types_.size()) {
        return error(Code::corrupt, "there are {} tokens, but {} scores", types_.size(), parts_->scores.size());
      }
    }
    parts_->scores.resize(types_.size());
    return {};
  }

  Result<Token> id(std::string_view key, Token otherwise) const {
    TRY(int64_t value, meta_.get_int(fmt::format("tokenizer.ggml.{}_token_id", key), otherwise));
    return vocabulary_->has(static_cast<Token>(std::clamp<int64_t>(value, -1, kMostTokens))) ? static_cast<Token>(value)
                                                                                             : kNoToken;
  }

  Result<void> load_ids(std::string_view model) {
    // Files that predate these keys are Llama's or T5's; in any other the tokens at these places are something else.
    auto usual = [&](std::string_view text, Token id) { return vocabulary_->text(id) == text ? id : kNoToken; };
    const bool spm = model == "llama", t5 = model == "t5";
    SpecialTokens& special = parts_->special;
    TRY(special.begin, id("bos", spm ? usual("<s>", 1) : kNoToken));
    TRY(special.end, id("eos", spm || t5 ? usual("</s>", t5 ? 1 : 2) : kNoToken));
    TRY(special.unknown, id("unknown", spm || t5 ? usual("<unk>", t5 ? 2 : 0) : kNoToken));
    TRY(special.pad, id("padding", t5 ? usual("<pad>", 0) : kNoToken));
    TRY(special.end_of_turn, id("eot", -1));
    TRY(special.end_of_message, id("eom", -1));
    TRY(special.separator, id("seperator", -1));
    TRY(special.mask, id("mask", -1));
    TRY(special.fill_prefix, id("fim_pre", -1));
    TRY(special.fill_suffix, id("fim_suf", -1));
    TRY(special.fill_middle, id("fim_mid", -1));
    return {};
  }

  Result<void> load_flags(bool add_begin, bool add_end) {
    TRY(parts_->special.add_begin, meta_.get_bool("tokenizer.ggml.add_bos_token", add_begin));
    TRY(parts_->special.add_end, meta_.get_bool("tokenizer.ggml.add_eos_token", add_end));
    return {};
  }

  Result<void> load_bpe(std::string_view model) {
    TRY(std::string name, meta_.get_string("tokenizer.ggml.pre", "default"));
    if (model == "gemma4") name = "gemma4";
    TRY(GgufPre pre, gguf_pre(name));
    if (pre.no_begin && meta_.find("tokenizer.ggml.bos_token_id") == nullptr) parts_->special.begin = kNoToken;
    TRY_VOID(load_flags(pre.add_begin || name == "gemma4", false));
    parts_->pre = std::move(pre.pre);
    parts_->gguf_pre = name;
    parts_->byte_level = pre.byte_level;
    BpeOptions& options = parts_->bpe_options;
    options.byte_level = pre.byte_level;
    options.ignore_merges = pre.ignore_merges;
    TRY(PairTable pairs, load_merges());
    auto pieces = vocabulary_;
    if (pre.byte_level) {
      pieces = std::make_shared<Vocabulary>();
      pieces->reserve(vocabulary_->count(), 0);
      std::string bytes;
      for (Token token = 0; token < vocabulary_->size(); ++token) {
        bytes.clear();
        if (append_from_byte_level(bytes, vocabulary_->text(token))) TRY_VOID(pieces->add(bytes, token));
      }
      parts_->decoder.add_byte_level();
    } else {
      options.byte_fallback = true;
      options.newlines_whole = true;
      parts_->normalizer.add_replace(Pattern::literal(" "), std::string(kMark));
      add_marks_decoder(false);
    }
    TRY(std::string form, meta_.get_string("millrace.tokenizer.normalizer", ""));
    if (form == "nfc") parts_->normalizer.add_form(NormalForm::nfc);
    TRY(auto bpe, Bpe::build(std::move(pieces), vocabulary_, std::move(pairs), ranks_, options));
    parts_->bpe = bpe.get();
    parts_->model = std::move(bpe);
    return {};
  }

  Result<PairTable> load_merges() {
    const MetaArray* list = meta_.find_array("tokenizer.ggml.merges");
    if (list == nullptr) return error(Code::not_found, "the file has no merges (tokenizer.ggml.merges)");
    TRY(auto merges, list->strings());
    MergeReader reader(*vocabulary_, 0, false);
    reader.reserve(merges.size());
    for (std::string_view merge : merges) {
      const size_t space = merge.find(' ', 1);
      if (space == merge.npos) return error(Code::corrupt, "the merge '{}' is not two tokens", merge.substr(0, 80));
      TRY_VOID(reader.add(merge.substr(0, space), merge.substr(space + 1)));
    }
    TRY_VOID(reader.flush());
    ranks_ = reader.ranks();
    return reader.take();
  }

  // Marks become spaces and <0x41> bytes; a text that began with a space it was given loses it again.
  void add_marks_decoder(bool strips) {
    parts_->decoder.add_replace(Pattern::literal(kMark), " ");
    parts_->decoder.add_byte_fallback();
    parts_->decoder.add_fuse();
    if (strips) parts_->decoder.add_strip(" ", 1, 0);
  }

  Result<void> load_score_bpe() {
    TRY_VOID(load_flags(true, false));
    TRY(bool prefix, meta_.get_bool("tokenizer.ggml.add_space_prefix", true));
    if (prefix) parts_->normalizer.add_prepend(" ");
    parts_->normalizer.add_replace(Pattern::literal(" "), std::string(kMark));
    parts_->cutter = WordCutter(*vocabulary_, std::string(kMark));
    TRY(parts_->model, ScoreBpe::build(vocabulary_, parts_->scores, parts_->special.unknown));
    parts_->kind = ModelKind::score_bpe;
    add_marks_decoder(prefix);
    return {};
  }

  Result<void> load_unigram() {
    TRY_VOID(load_flags(false, true));
    SpmUnigramOptions options;
    TRY(options.space_prefix, meta_.get_bool("tokenizer.ggml.add_space_prefix", true));
    TRY(options.merge_spaces, meta_.get_bool("tokenizer.ggml.remove_extra_whitespaces", false));
    options.unknown = parts_->special.unknown;
    if (const MetaArray* bytes = meta_.find_array("tokenizer.ggml.precompiled_charsmap")) {
      TRY(auto numbers, bytes->integers());
      std::string charsmap;
      for (int64_t number : numbers) charsmap.push_back(static_cast<char>(number));
      TRY(options.charsmap, Charsmap::from_bytes(charsmap));
    }
    TRY(parts_->model, build_spm_unigram(vocabulary_, parts_->scores, types_, std::move(options)));
    parts_->kind = ModelKind::unigram;
    add_marks_decoder(true);
    return {};
  }

  // Words begin with a mark here, and what goes on with one has none: the other way round from BERT's own files.
  Result<void> load_word_piece() {
    SpecialTokens& special = parts_->special;
    auto settle = [&](Token& token, std::string_view text) {
      if (token == kNoToken) token = vocabulary_->find(text);
    };
    TRY(const Token cls, id("cls", -1));
    if (cls != kNoToken) special.begin = cls;
    settle(special.begin, "[CLS]");
    settle(special.separator, "[SEP]");
    settle(special.unknown, "[UNK]");
    if (special.separator != kNoToken) special.end = special.separator;
    TRY_VOID(load_flags(true, true));
    TRY(special.add_end, meta_.get_bool("tokenizer.ggml.add_sep_token", special.add_end));
    constexpr size_t kMostCharacters = 100;
    auto made = std::make_unique<WordPiece>(special.unknown, kMostCharacters);
    for (Token token = 0; token < vocabulary_->size(); ++token) {
      const std::string_view text = vocabulary_->text(token);
      if (types_[static_cast<size_t>(token)] != Type::normal || vocabulary_->find(text) != token) continue;
      const bool starts = text.starts_with(kMark);
      if (starts && text.size() > kMark.size()) made->add_start(text.substr(kMark.size()), token);
      if (!starts) made->add_inside(text, token);
    }
    parts_->normalizer.add_bert();
    parts_->pre.add_bert();
    parts_->model = std::move(made);
    parts_->kind = ModelKind::word_piece;
    parts_->decoder.add_replace(Pattern::literal(kMark), " ");
    parts_->decoder.add_fuse();
    parts_->decoder.add_strip(" ", 1, 0);
    return {};
  }

  // [CLS] first [SEP] second [SEP]; elsewhere begin first end end second end, where texts have both.
  void load_pair(bool bert) {
    const SpecialTokens& special = parts_->special;
    if (!special.add_begin || !special.add_end || special.begin == kNoToken || special.end == kNoToken) return;
    parts_->pair = {{.token = special.begin}, {.text = 1}, {.token = special.end}};
    if (!bert) parts_->pair.push_back({.token = special.end});
    parts_->pair.push_back({.text = 2, .second = bert});
    parts_->pair.push_back({.token = special.end, .second = bert});
  }

  // Control tokens are parsed where the caller wants it, user-defined ones always.
  Result<void> load_added() {
    TRY(std::string name, meta_.get_string("general.name", ""));
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    // The white space beside the control tokens of these models goes with them; files do not say so.
    const bool strips = name.find("phi-3") != name.npos || name.find("phi3") != name.npos;
    parts_->raw_added.set_skip_hidden();
    for (Token token = 0; token < vocabulary_->size(); ++token) {
      const Type type = types_[static_cast<size_t>(token)];
      if (type != Type::control && type != Type::user_defined && type != Type::unknown) continue;
      AddedToken added;
      added.id = token;
      added.text = vocabulary_->text(token);
      added.special = type != Type::user_defined;
      added.right_strip = strips && added.text != "<unk>" && added.text != "<s>" && added.text != "<|endoftext|>";
      parts_->added.push_back(std::move(added));
    }
    for (Type type : types_) parts_->gguf_types.push_back(static_cast<uint8_t>(type));
    return {};
  }

  const Metadata& meta_;
  std::unique_ptr<TokenizerParts> parts_;
  std::shared_ptr<Vocabulary> vocabulary_;
  std::vector<Type> types_;
  uint32_t ranks_ = 0;
};

}  // namespace

Result<Tokenizer> Tokenizer::from_metadata(const Metadata& metadata) { return Loader(metadata).run(); }

Result<Tokenizer> Tokenizer::open(const Checkpoint& checkpoint) {
  if (checkpoint.kind() == Checkpoint::Kind::gguf) return from_metadata(checkpoint.metadata());
  const auto& path = checkpoint.tokenizer_json();
  std::error_code ignored;
  if (const auto words = checkpoint.path() / "vocab.txt"; !path && std::filesystem::exists(words, ignored)) {
    constexpr size_t kMostBytes = size_t{64} << 20;
    TRY(const std::string text, read_side_file(checkpoint.path(), words, kMostBytes));
    auto tokenizer = from_words(text, checkpoint.tokenizer_config());
    if (!tokenizer.ok()) return within(words.string(), std::move(tokenizer).error());
    return tokenizer;
  }
  if (!path) {
    return error(Code::not_found, "{} has no tokenizer.json; it comes with the model's other files",
                 checkpoint.path().string());
  }
  TRY(std::string text, read_file(*path));
  const Json* ends = find(checkpoint.generation_config(), "eos_token_id");
  auto tokenizer = from_json(text, checkpoint.tokenizer_config(),
                             ends != nullptr ? checkpoint.generation_config() : checkpoint.config());
  if (!tokenizer.ok()) return within(path->string(), std::move(tokenizer).error());
  return tokenizer;
}

}  // namespace millrace
