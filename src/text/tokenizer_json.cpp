// Tokenizers from a tokenizer.json.
#include <boost/json/monotonic_resource.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/byte_level.h"
#include "text/merge_reader.h"
#include "text/tokenizer_parts.h"
#include "text/unigram.h"
#include "text/word_piece.h"

namespace millrace {
namespace {

std::string_view view(const boost::json::string& text) { return {text.data(), text.size()}; }

constexpr size_t kMostBeside = 1024;  // tokens before and after a text; known files have two

const Json& member(const Json& json, std::string_view key) {
  static const Json kNull;
  const Json* value = find(json, key);
  return value == nullptr ? kNull : *value;
}

class Loader {
 public:
  Loader(const Json& file, const Json& config, const Json& generation)
      : file_(file), config_(config), generation_(generation), parts_(std::make_unique<TokenizerParts>()) {}

  Result<Tokenizer> run() {
    if (!file_.is_object()) return error(Code::invalid, "a tokenizer.json should be an object");
    TRY(parts_->normalizer, Normalizer::from_json(member(file_, "normalizer")));
    TRY(parts_->pre, PreTokenizer::from_json(member(file_, "pre_tokenizer")));
    TRY(parts_->decoder, Decoder::from_json(member(file_, "decoder")));
    parts_->byte_level = parts_->pre.byte_level() || parts_->normalizer.byte_level();
    if (parts_->pre.byte_level() && parts_->normalizer.byte_level()) {
      return error(Code::unsupported, "both the normalizer and the pre-tokenizer are ByteLevel");
    }
    const Json& model = member(file_, "model");
    TRY(std::string type, get_string(model, "type", ""));
    if (type.empty())
      type = find(model, "merges") != nullptr ? "BPE" : member(model, "vocab").is_array() ? "Unigram" : "";
    if (type == "BPE") {
      TRY_VOID(load_bpe(model));
    } else if (type == "Unigram") {
      TRY_VOID(load_unigram(model));
    } else if (type == "WordPiece") {
      TRY_VOID(load_word_piece(model));
    } else {
      return error(Code::unsupported, "the tokenizer model '{}' is not supported; BPE, Unigram and WordPiece are",
                   type);
    }
    TRY_VOID(load_post_processor(member(file_, "post_processor"), 0));
    TRY_VOID(parts_->index_added());
    TRY_VOID(load_special());
    return TokenizerParts::finish(std::move(parts_));
  }

 private:
  // The model's vocabulary is in `all`; adds what was added to it.
  Result<void> load_added(Vocabulary& all) {
    const Json& list = member(file_, "added_tokens");
    if (list.is_null()) return {};
    if (!list.is_array()) return error(Code::invalid, "'added_tokens' should be a list");
    for (const Json& item : list.get_array()) {
      AddedToken token;
      TRY(token.text, get_string(item, "content", ""));
      TRY(int64_t id, get_int(item, "id", -1));
      TRY(token.special, get_bool(item, "special", false));
      TRY(token.normalized, get_bool(item, "normalized", !token.special));
      TRY(token.single_word, get_bool(item, "single_word", false));
      TRY(token.left_strip, get_bool(item, "lstrip", false));
      TRY(token.right_strip, get_bool(item, "rstrip", false));
      if (token.text.empty()) continue;
      token.id = all.find(token.text);
      if (token.id == kNoToken) {
        if (id < 0 || id >= kMostTokens) return error(Code::invalid, "added token '{}' has id {}", token.text, id);
        token.id = static_cast<Token>(id);
        TRY_VOID(all.add(token.text, token.id));
      }
      parts_->added.push_back(std::move(token));
    }
    return {};
  }

  // Texts by id, of a model that writes them as an object.
  static Result<std::shared_ptr<Vocabulary>> read_vocabulary(const Json& model) {
    const Json& vocab = member(model, "vocab");
    if (!vocab.is_object()) return error(Code::invalid, "the model's vocabulary should be an object");
    auto all = std::make_shared<Vocabulary>();
    all->reserve(vocab.get_object().size() + 1024, 0);
    for (const auto& entry : vocab.get_object()) {
      if (!entry.value().is_int64()) return error(Code::invalid, "token '{}' has no id", std::string_view(entry.key()));
      const int64_t id = entry.value().get_int64();
      if (id < 0 || id >= kMostTokens)
        return error(Code::invalid, "token '{}' has id {}", std::string_view(entry.key()), id);
      TRY_VOID(all->add(std::string_view(entry.key().data(), entry.key().size()), static_cast<Token>(id)));
    }
    return all;
  }

  Result<void> load_word_piece(const Json& model) {
    TRY(auto all, read_vocabulary(model));
    TRY(const std::string prefix, get_string(model, "continuing_subword_prefix", "##"));
    TRY(const std::string unknown, get_string(model, "unk_token", "[UNK]"));
    TRY(const int64_t most, get_int(model, "max_input_chars_per_word", 100));
    if (most < 1) return error(Code::invalid, "words of at most {} characters", most);
    const Token unknown_id = all->find(unknown);
    if (unknown_id == kNoToken) return error(Code::invalid, "the unknown token '{}' is not in the vocabulary", unknown);
    auto made = std::make_unique<WordPiece>(unknown_id, static_cast<size_t>(most));
    for (Token id = 0; id < all->size(); ++id) {
      const std::string_view text = all->text(id);
      if (!all->has(id) || text.empty() || all->find(text) != id) continue;
      made->add_start(text, id);
      if (text.size() > prefix.size() && text.starts_with(prefix)) made->add_inside(text.substr(prefix.size()), id);
    }
    parts_->model = std::move(made);
    parts_->kind = ModelKind::word_piece;
    parts_->special.unknown = unknown_id;
    TRY_VOID(load_added(*all));
    parts_->vocabulary = std::move(all);
    return {};
  }

  Result<void> load_bpe(const Json& model) {
    TRY(auto all, read_vocabulary(model));
    const Token model_size = all->size();
    TRY_VOID(load_bpe_options(model, *all));
    TRY(PairTable pairs, load_merges(model, *all));
    // What pieces are looked up in: bytes at byte level.
    std::shared_ptr<Vocabulary> pieces = all;
    if (parts_->byte_level) {
      pieces = std::make_shared<Vocabulary>();
      pieces->reserve(all->count(), 0);
      std::string bytes;
      for (Token id = 0; id < model_size; ++id) {
        bytes.clear();
        if (all->has(id) && append_from_byte_level(bytes, all->text(id))) TRY_VOID(pieces->add(bytes, id));
      }
    } else if (find(file_, "added_tokens") != nullptr) {
      // Added tokens are no pieces: they get a vocabulary that has them too.
      all = std::make_shared<Vocabulary>(*pieces);
    }
    TRY_VOID(load_added(*all));
    const BpeOptions& options = parts_->bpe_options;
    const bool by_place = options.ignore_merges || !options.prefix.empty() || !options.suffix.empty();
    if (!parts_->byte_level && !by_place) {
      parts_->cutter = WordCutter(*pieces, "\xE2\x96\x81");
    }
    TRY(auto bpe, Bpe::build(pieces, all, std::move(pairs), ranks_, parts_->bpe_options));
    parts_->vocabulary = std::move(all);
    parts_->bpe = bpe.get();
    parts_->model = std::move(bpe);
    return {};
  }

  Result<void> load_bpe_options(const Json& model, const Vocabulary& vocabulary) {
    BpeOptions& options = parts_->bpe_options;
    options.byte_level = parts_->byte_level;
    TRY(options.ignore_merges, get_bool(model, "ignore_merges", false));
    TRY(options.byte_fallback, get_bool(model, "byte_fallback", false));
    TRY(options.fuse_unknown, get_bool(model, "fuse_unk", false));
    TRY(options.prefix, get_string(model, "continuing_subword_prefix", ""));
    TRY(options.suffix, get_string(model, "end_of_word_suffix", ""));
    TRY(std::string unknown, get_string(model, "unk_token", ""));
    if (!unknown.empty()) {
      options.unknown = vocabulary.find(unknown);
      if (options.unknown == kNoToken)
        return error(Code::invalid, "the unknown token '{}' is not in the vocabulary", unknown);
    }
    parts_->special.unknown = options.unknown;
    return {};
  }

  // A merge is "a b" or ["a", "b"]. False for a line that is none ("#version ...").
  static Result<bool> read_merge(const Json& merge, size_t index, std::string_view* left, std::string_view* right) {
    if (merge.is_string()) {
      std::string_view both = view(merge.get_string());
      if (both.starts_with("#version")) return false;
      const size_t space = both.find(' ');
      if (space == both.npos || both.find(' ', space + 1) != both.npos) {
        return error(Code::invalid, "merge {} is '{}', not two tokens", index, both);
      }
      *left = both.substr(0, space), *right = both.substr(space + 1);
      return true;
    }
    const auto* two = merge.if_array();
    if (two == nullptr || two->size() != 2 || !(*two)[0].is_string() || !(*two)[1].is_string()) {
      return error(Code::invalid, "merge {} is not two tokens", index);
    }
    *left = view((*two)[0].get_string()), *right = view((*two)[1].get_string());
    return true;
  }

  Result<PairTable> load_merges(const Json& model, const Vocabulary& vocabulary) {
    const Json& merges = member(model, "merges");
    if (!merges.is_array()) return error(Code::invalid, "a BPE model has no merges");
    const auto& list = merges.get_array();
    MergeReader reader(vocabulary, parts_->bpe_options.prefix.size(), true);
    reader.reserve(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      std::string_view left, right;
      TRY(bool is_merge, read_merge(list[i], i, &left, &right));
      if (is_merge) TRY_VOID(reader.add(left, right));
    }
    TRY_VOID(reader.flush());
    ranks_ = reader.ranks();
    return reader.take();
  }

  Result<void> load_unigram(const Json& model) {
    const Json& vocab = member(model, "vocab");
    if (!vocab.is_array()) return error(Code::invalid, "the vocabulary of a Unigram model should be a list");
    if (vocab.get_array().size() > static_cast<size_t>(kMostTokens))
      return error(Code::invalid, "the vocabulary is too large");
    auto all = std::make_shared<Vocabulary>();
    all->reserve(vocab.get_array().size() + 1024, 0);
    std::vector<double> scores;
    double lowest = std::numeric_limits<double>::infinity();
    for (const Json& entry : vocab.get_array()) {
      const bool pair = entry.is_array() && entry.get_array().size() == 2 && entry.get_array()[0].is_string() &&
                        entry.get_array()[1].is_number();
      if (!pair) return error(Code::invalid, "entry {} of the vocabulary is not a token and its score", scores.size());
      TRY_VOID(all->add(view(entry.get_array()[0].get_string()), static_cast<Token>(scores.size())));
      scores.push_back(entry.get_array()[1].to_number<double>());
      lowest = std::min(lowest, scores.back());
    }
    UnigramOptions options;
    TRY(int64_t unknown, get_int(model, "unk_id", -1));
    TRY(options.byte_fallback, get_bool(model, "byte_fallback", false));
    if (unknown >= static_cast<int64_t>(scores.size()))
      return error(Code::invalid, "the unknown token has id {}", unknown);
    options.unknown = static_cast<Token>(std::max<int64_t>(unknown, -1));
    constexpr double kUnknownPenalty = 10;
    parts_->scores.assign(scores.begin(), scores.end());
    auto pieces = std::make_shared<Vocabulary>(*all);
    TRY_VOID(load_added(*all));
    const std::vector<bool> usable(scores.size(), true);
    TRY(parts_->model, Unigram::build(std::move(pieces), std::move(scores), usable, lowest - kUnknownPenalty, options));
    parts_->vocabulary = std::move(all);
    parts_->kind = ModelKind::unigram;
    parts_->special.unknown = options.unknown;
    parts_->bpe_options.byte_fallback = options.byte_fallback;
    return {};
  }

  Result<Token> token_named(const Json& json) const {
    if (!json.is_string()) return error(Code::invalid, "the post-processor names no token");
    Token id = parts_->vocabulary->find(view(json.get_string()));
    if (id == kNoToken)
      return error(Code::invalid, "the post-processor's token '{}' does not exist", view(json.get_string()));
    return id;
  }

  Result<void> load_post_processor(const Json& json, int depth) {
    if (json.is_null()) return {};
    TRY(std::string type, get_string(json, "type", ""));
    if (depth > 8) return error(Code::unsupported, "the post-processor has too many steps");
    TRY_VOID(check_beside(parts_->prefix.size() + parts_->suffix.size()));
    if (type == "Sequence") {
      const Json& list = member(json, "processors");
      if (!list.is_array()) return error(Code::invalid, "a post-processor sequence has no 'processors'");
      for (const Json& item : list.get_array()) TRY_VOID(load_post_processor(item, depth + 1));
    } else if (type == "TemplateProcessing") {
      TRY_VOID(load_template(json));
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      const Json &first = member(json, "cls"), &last = member(json, "sep");
      if (!first.is_array() || first.get_array().empty() || !last.is_array() || last.get_array().empty()) {
        return error(Code::invalid, "a {} post-processor needs 'cls' and 'sep'", type);
      }
      TRY(Token begin, token_named(first.get_array()[0]));
      TRY(Token end, token_named(last.get_array()[0]));
      parts_->prefix.insert(parts_->prefix.begin(), begin);
      parts_->suffix.push_back(end);
      const bool types = type == "BertProcessing";
      parts_->pair = {{.token = begin}, {.text = 1}, {.token = end}};
      if (!types) parts_->pair.push_back({.token = end});
      parts_->pair.push_back({.text = 2, .second = types});
      parts_->pair.push_back({.token = end, .second = types});
    } else if (type != "ByteLevel") {
      return error(Code::unsupported, "the post-processor '{}' is not supported", type);
    }
    return {};
  }

  // The same long list may be named again and again, so what comes of it is counted.
  static Result<void> check_beside(size_t tokens) {
    if (tokens <= kMostBeside) return {};
    return error(Code::invalid,
                 "the post-processor puts {} tokens or more beside a text; {} is the most that is allowed", tokens,
                 kMostBeside);
  }

  // Tokens before and after the text, by the template for one text.
  Result<void> load_template(const Json& json) {
    const Json& list = member(json, "single");
    if (!list.is_array()) return error(Code::invalid, "a post-processor template has no 'single'");
    std::vector<Token> before, after;
    bool seen = false;
    for (const Json& item : list.get_array()) {
      if (find(item, "Sequence") != nullptr) {
        seen = true;
        continue;
      }
      const Json& name = member(member(item, "SpecialToken"), "id");
      if (!name.is_string()) return error(Code::invalid, "a post-processor template has an unknown part");
      const Json& ids = member(member(member(json, "special_tokens"), view(name.get_string())), "ids");
      if (!ids.is_array())
        return error(Code::invalid, "a post-processor template has no ids for '{}'", view(name.get_string()));
      for (const Json& id : ids.get_array()) {
        if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= kMostTokens) {
          return error(Code::invalid, "a post-processor template has an id that is none");
        }
        (seen ? after : before).push_back(static_cast<Token>(id.get_int64()));
      }
      TRY_VOID(check_beside(before.size() + after.size()));
    }
    TRY_VOID(load_pair(json));
    parts_->prefix.insert(parts_->prefix.begin(), before.begin(), before.end());
    parts_->suffix.insert(parts_->suffix.end(), after.begin(), after.end());
    return {};
  }

  // How two texts go together; a template that is not about two texts is left out.
  Result<void> load_pair(const Json& json) {
    const Json& list = member(json, "pair");
    if (!list.is_array() || list.get_array().size() > 64) return {};
    std::vector<PairPart> parts;
    int seen = 0;
    for (const Json& item : list.get_array()) {
      const bool is_text = find(item, "Sequence") != nullptr;
      const Json& what = member(item, is_text ? "Sequence" : "SpecialToken");
      TRY(const int64_t type, get_int(what, "type_id", 0));
      TRY(const std::string name, get_string(what, "id", ""));
      if (is_text) {
        const int text = name == "B" ? 2 : 1;
        seen |= text;
        parts.push_back({.text = text, .second = type == 1});
        continue;
      }
      const Json& ids = member(member(member(json, "special_tokens"), name), "ids");
      if (!ids.is_array()) return error(Code::invalid, "a post-processor template has no ids for '{}'", name);
      for (const Json& id : ids.get_array()) {
        if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= kMostTokens)
          return error(Code::invalid, "a post-processor template has an id that is none");
        parts.push_back({.token = static_cast<Token>(id.get_int64()), .second = type == 1});
      }
      TRY_VOID(check_beside(static_cast<size_t>(std::ranges::count(parts, 0, &PairPart::text))));
    }
    if (seen == 3) parts_->pair = std::move(parts);
    return {};
  }

  // A name in tokenizer_config.json is a string or an object with "content".
  Token configured(std::string_view key) const {
    const Json* value = find(config_, key);
    if (value != nullptr && value->is_object()) value = find(*value, "content");
    if (value == nullptr || !value->is_string()) return kNoToken;
    return parts_->vocabulary->find(view(value->get_string()));
  }

  Result<void> load_special() {
    SpecialTokens& special = parts_->special;
    special.begin = configured("bos_token");
    special.end = configured("eos_token");
    special.pad = configured("pad_token");
    special.separator = configured("sep_token");
    special.mask = configured("mask_token");
    if (Token unknown = configured("unk_token"); unknown != kNoToken) special.unknown = unknown;
    if (special.begin == kNoToken && !parts_->prefix.empty()) special.begin = parts_->prefix.front();
    if (special.end == kNoToken && !parts_->suffix.empty()) special.end = parts_->suffix.back();
    adjust(parts_->prefix, special.begin, "add_bos_token", true);
    adjust(parts_->suffix, special.end, "add_eos_token", false);
    auto contains = [](const std::vector<Token>& list, Token id) {
      return id != kNoToken && std::find(list.begin(), list.end(), id) != list.end();
    };
    special.add_begin = contains(parts_->prefix, special.begin);
    const bool no_rule = find(config_, "add_bos_token") == nullptr && find(file_, "post_processor") == nullptr;
    special.wants_begin = special.add_begin || (special.begin != kNoToken && no_rule);
    special.add_end = contains(parts_->suffix, special.end);
    const Json& ends = member(generation_, "eos_token_id");
    auto add_end = [&](const Json& id) {
      if (id.is_int64() &&
          parts_->vocabulary->has(static_cast<Token>(std::clamp<int64_t>(id.get_int64(), -1, kMostTokens)))) {
        parts_->ends.push_back(static_cast<Token>(id.get_int64()));
      }
    };
    if (ends.is_array()) {
      for (const Json& id : ends.get_array()) add_end(id);
    } else {
      add_end(ends);
    }
    if (special.end == kNoToken && !parts_->ends.empty()) special.end = parts_->ends.front();
    if (!parts_->ends.empty() && special.end != kNoToken) parts_->ends.push_back(special.end);
    find_special_by_text(*parts_);
    return {};
  }

  // add_bos_token and add_eos_token overrule the post-processor where they are given.
  void adjust(std::vector<Token>& list, Token id, std::string_view key, bool front) const {
    const Json* wanted = find(config_, key);
    if (wanted == nullptr || !wanted->is_bool() || id == kNoToken) return;
    const bool there = std::find(list.begin(), list.end(), id) != list.end();
    if (wanted->get_bool() && !there) list.insert(front ? list.begin() : list.end(), id);
    if (!wanted->get_bool() && there) std::erase(list, id);
  }

  const Json &file_, &config_, &generation_;
  std::unique_ptr<TokenizerParts> parts_;
  uint32_t ranks_ = 0;
};

}  // namespace

Result<Tokenizer> Tokenizer::from_json(std::string_view tokenizer_json, const Json& tokenizer_config,
                                       const Json& generation_config) {
  boost::json::monotonic_resource memory(tokenizer_json.size() + 4096);
  TRY(Json file, parse_json(tokenizer_json, {}, &memory));
  return Loader(file, tokenizer_config, generation_config).run();
}

Result<Tokenizer> Tokenizer::from_words(std::string_view vocab_txt, const Json& tokenizer_config) {
  TRY(const Json file, tokenizer_of_words(vocab_txt, tokenizer_config));
  return Loader(file, tokenizer_config, nullptr).run();
}

}  // namespace millrace
