// Which tokens end an answer, a turn or a message, and which mark the holes of text to fill in, judged by their text:
// the names below are what models in use call them.
#include <algorithm>
#include <span>
#include <string_view>

#include "text/tokenizer_parts.h"

namespace millrace {
namespace {

using Names = std::span<const std::string_view>;

constexpr std::string_view kEndOfTurn[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>",         "<|endoftext|>",     "<|end_of_text|>",
    "<EOT>",      "_<EOT>",     "[EOT]",   "<｜end▁of▁sentence｜>", "<end_of_utterance>"};
constexpr std::string_view kEndOfMessage[] = {"<|eom_id|>"};
constexpr std::string_view kFillPrefix[] = {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>",    "<｜fim▁begin｜>",
                                            "<PRE>",          "▁<PRE>",       "<|code_prefix|>", "<|prefix|>"};
constexpr std::string_view kFillSuffix[] = {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>",    "<｜fim▁hole｜>",
                                            "<SUF>",          "▁<SUF>",       "<|code_suffix|>", "<|suffix|>"};
constexpr std::string_view kFillMiddle[] = {"<|fim_middle|>", "<fim-middle>", "<fim_middle>",    "<｜fim▁end｜>",
                                            "<MID>",          "▁<MID>",       "<|code_middle|>", "<|middle|>"};
constexpr std::string_view kEnds[] = {"<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>",
                                      "<|calls|>", "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>",
                                      "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>",
                                      "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[",
                                      // a file or a repository begins: what was asked for is over
                                      "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|fim_repo|>",
                                      "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>"};

Token first_of(const Vocabulary& vocabulary, Names names) {
  for (std::string_view name : names) {
    if (Token id = vocabulary.find(name); id != kNoToken) return id;
  }
  return kNoToken;
}

void remove_end(TokenizerParts& parts, std::string_view name) { std::erase(parts.ends, parts.vocabulary->find(name)); }

}  // namespace

void find_special_by_text(TokenizerParts& parts) {
  const Vocabulary& vocabulary = *parts.vocabulary;
  auto fill = [&](Token& id, Names names) {
    if (id == kNoToken) id = first_of(vocabulary, names);
  };
  SpecialTokens& special = parts.special;
  fill(special.end_of_turn, kEndOfTurn);
  fill(special.end_of_message, kEndOfMessage);
  fill(special.fill_prefix, kFillPrefix);
  fill(special.fill_suffix, kFillSuffix);
  fill(special.fill_middle, kFillMiddle);
  if (!parts.ends.empty()) return;  // the model says itself
  for (std::string_view name : kEnds) {
    const Token id = vocabulary.find(name);
    // Strike-through in HTML is an ordinary token in some vocabularies.
    const bool ordinary = name == "</s>" && id != kNoToken && !parts.is_special[static_cast<size_t>(id)];
    if (id != kNoToken && !ordinary) parts.ends.push_back(id);
  }
  for (Token id : {special.end, special.end_of_turn, special.end_of_message}) {
    if (id != kNoToken) parts.ends.push_back(id);
  }
  auto has = [&](std::string_view name) {
    return std::find(parts.ends.begin(), parts.ends.end(), vocabulary.find(name)) != parts.ends.end();
  };
  // Where a channel ends with <|end|> and an answer with <|return|> or a call, only the latter end an answer.
  const bool calls = has("<|call|>") || has("<|calls|>");
  if (calls && (has("<|return|>") || has("<|flush|>"))) remove_end(parts, "<|end|>");
  if (has("<|tool_response>")) remove_end(parts, "</s>");
}

}  // namespace millrace
