#include "text/gguf_vocab.h"

#include <algorithm>

#include "tensor/gguf_writer.h"
#include "text/gguf_pre.h"
#include "text/tokenizer_parts.h"

namespace millrace {
namespace {

constexpr std::string_view kMark = "\xE2\x96\x81";

bool is_byte_token(std::string_view text) {
  return text.size() == 6 && text.starts_with("<0x") && text[5] == '>' &&
         std::isxdigit(static_cast<unsigned char>(text[3])) && std::isxdigit(static_cast<unsigned char>(text[4]));
}

// Tokens that files forget to mark as control tokens.
bool looks_special(std::string_view text) {
  return text == "<pad>" || text == "<mask>" || text == "<2mass>" || text == "[@BOS@]" ||
         (text.starts_with("<|") && text.ends_with("|>")) ||
         (text.starts_with("<\uFF5C") && text.ends_with("\uFF5C>")) ||
         (text.starts_with("<unused") && text.ends_with(">"));
}

std::string with_spaces(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const bool mark = text.substr(at).starts_with(kMark);
    out.append(mark ? " " : text.substr(at, 1));
    at += mark ? kMark.size() : 1;
  }
  return out;
}

class Exporter {
 public:
  Exporter(const TokenizerParts& parts, Token model_tokens) : parts_(parts), model_tokens_(model_tokens) {}

  Result<GgufVocab> run() {
    if (parts_.kind == ModelKind::word_piece) {
      return error(Code::unsupported, "writing a WordPiece tokenizer into a GGUF file is not supported");
    } else if (parts_.kind == ModelKind::unigram) {
      return error(Code::unsupported, "writing a Unigram tokenizer into a GGUF file is not supported");
    } else if (parts_.kind == ModelKind::score_bpe) {
      out_.model = "llama";
      out_.pre = "default";
      out_.scores = parts_.scores;
      out_.add_space_prefix = parts_.normalizer.signature().starts_with("prepend");
    } else if (parts_.byte_level) {
      TRY_VOID(export_byte_level());
    } else {
      TRY_VOID(export_characters());
    }
    export_tokens();
    export_ids();
    return std::move(out_);
  }

 private:
  Result<void> export_byte_level() {
    out_.model = "gpt2";
    const std::string& normalizer = parts_.normalizer.signature();
    if (!normalizer.empty() && normalizer != "nfc") {
      return error(Code::unsupported, "a GGUF file cannot say how this tokenizer normalises text ({})", normalizer);
    }
    out_.normalizer = normalizer;
    out_.pre = parts_.gguf_pre;
    if (out_.pre.empty()) {
      std::optional<std::string> name = gguf_pre_name(parts_.pre.signature(), parts_.bpe_options.ignore_merges);
      if (!name) {
        return error(Code::unsupported,
                     "a GGUF file names the way text is split, and there is no name for the way of this tokenizer: {}",
                     parts_.pre.signature());
      }
      out_.pre = *name;
    }
    export_merges();
    return {};
  }

  void export_merges() {
    for (const PairTable::Entry& merge : parts_.bpe->pairs().in_order()) {
      out_.merges.push_back(
          fmt::format("{} {}", parts_.vocabulary->text(merge.left), parts_.vocabulary->text(merge.right)));
    }
  }

  // BPE over characters is SentencePiece's: what comes first in the list of merges has the better score.
  Result<void> export_characters() {
    if (parts_.gguf_pre == "gemma4") {
      out_.model = out_.pre = "gemma4";
      export_merges();
      return {};
    }
    const std::string& normalizer = parts_.normalizer.signature();
    const bool spm = (normalizer == "prepend|replace" || normalizer == "replace") && parts_.bpe_options.byte_fallback;
    // Gemma splits at spaces that the normalizer has replaced before, so nowhere.
    const std::string pre = parts_.pre.signature();
    const bool splits = !pre.empty() && !pre.starts_with("split:string:  ") && !pre.starts_with("metaspace");
    if ((!spm && !pre.starts_with("metaspace")) || splits || parts_.bpe_options.ignore_merges) {
      return error(Code::unsupported, "a GGUF file cannot hold this tokenizer: it normalises '{}' and splits '{}'",
                   normalizer, pre);
    }
    out_.model = "llama";
    out_.pre = "default";
    out_.add_space_prefix =
        normalizer.starts_with("prepend") || (pre.starts_with("metaspace") && pre.find(" n ") == pre.npos);
    out_.scores.assign(static_cast<size_t>(parts_.vocabulary->size()), kUnmerged);
    for (const PairTable::Entry& merge : parts_.bpe->pairs().in_order()) {
      float& score = out_.scores[static_cast<size_t>(merge.merge.token)];
      if (score == kUnmerged) score = -static_cast<float>(merge.merge.rank);
    }
    return {};
  }

  void export_tokens() {
    const Vocabulary& vocabulary = *parts_.vocabulary;
    const Token count = std::max(vocabulary.size(), model_tokens_);
    for (Token id = 0; id < count; ++id) {
      if (!vocabulary.has(id)) {
        out_.tokens.push_back(fmt::format("[PAD{}]", id));
        out_.types.push_back(static_cast<int32_t>(GgufTokenType::unused));
        continue;
      }
      out_.tokens.emplace_back(vocabulary.text(id));
      out_.types.push_back(static_cast<int32_t>(type_of(id)));
    }
    if (!out_.scores.empty()) out_.scores.resize(out_.tokens.size(), kUnmerged);
    if (!parts_.gguf_types.empty()) return;
    for (const AddedToken& added : parts_.added) {
      const auto index = static_cast<size_t>(added.id);
      const bool control = added.special || looks_special(added.text);
      out_.types[index] = static_cast<int32_t>(control ? GgufTokenType::control : GgufTokenType::user_defined);
      // Such tokens are looked for in the text as it is, where a space is a space.
      if (!control) out_.tokens[index] = with_spaces(added.text);
      if (added.id == parts_.special.unknown) out_.types[index] = static_cast<int32_t>(GgufTokenType::unknown);
    }
  }

  GgufTokenType type_of(Token id) const {
    if (!parts_.gguf_types.empty()) return static_cast<GgufTokenType>(parts_.gguf_types[static_cast<size_t>(id)]);
    const bool bytes = parts_.bpe_options.byte_fallback && !parts_.byte_level;
    return bytes && is_byte_token(parts_.vocabulary->text(id)) ? GgufTokenType::byte : GgufTokenType::normal;
  }

  void export_ids() {
    const SpecialTokens& special = parts_.special;
    out_.bos = special.begin, out_.eos = special.end, out_.eot = special.end_of_turn, out_.eom = special.end_of_message;
    out_.unk = special.unknown, out_.pad = special.pad, out_.sep = special.separator, out_.mask = special.mask;
    out_.fim_pre = special.fill_prefix, out_.fim_suf = special.fill_suffix, out_.fim_mid = special.fill_middle;
    out_.add_bos = special.wants_begin, out_.add_eos = special.add_end;
  }

  static constexpr float kUnmerged = -1e6f;  // below every rank
  const TokenizerParts& parts_;
  Token model_tokens_;
  GgufVocab out_;
};

}  // namespace

Result<GgufVocab> Tokenizer::gguf_vocab(Token model_tokens) const {
  if (model_tokens > kMostTokens) return error(Code::invalid, "{} tokens are too many", model_tokens);
  return Exporter(*parts_, model_tokens).run();
}

Result<void> put_vocab(GgufWriter& writer, const GgufVocab& vocab) {
  auto key = [](std::string_view name) { return fmt::format("tokenizer.ggml.{}", name); };
  TRY_VOID(writer.put(key("model"), vocab.model));
  if (!vocab.pre.empty()) TRY_VOID(writer.put(key("pre"), vocab.pre));
  TRY_VOID(writer.put(key("tokens"), std::span<const std::string>(vocab.tokens)));
  if (!vocab.scores.empty()) TRY_VOID(writer.put(key("scores"), std::span<const float>(vocab.scores)));
  TRY_VOID(writer.put(key("token_type"), std::span<const int32_t>(vocab.types)));
  if (!vocab.merges.empty()) TRY_VOID(writer.put(key("merges"), std::span<const std::string>(vocab.merges)));
  const std::pair<std::string_view, Token> ids[] = {
      {"bos", vocab.bos},         {"eos", vocab.eos},         {"eot", vocab.eot},         {"eom", vocab.eom},
      {"unknown", vocab.unk},     {"padding", vocab.pad},     {"seperator", vocab.sep},   {"mask", vocab.mask},
      {"fim_pre", vocab.fim_pre}, {"fim_suf", vocab.fim_suf}, {"fim_mid", vocab.fim_mid},
  };
  for (const auto& [name, id] : ids) {
    if (id >= 0) TRY_VOID(writer.put(fmt::format("tokenizer.ggml.{}_token_id", name), static_cast<uint32_t>(id)));
  }
  TRY_VOID(writer.put(key("add_bos_token"), vocab.add_bos));
  TRY_VOID(writer.put(key("add_eos_token"), vocab.add_eos));
  TRY_VOID(writer.put(key("add_space_prefix"), vocab.add_space_prefix));
  if (!vocab.normalizer.empty()) TRY_VOID(writer.put("millrace.tokenizer.normalizer", vocab.normalizer));
  return {};
}

}  // namespace millrace
