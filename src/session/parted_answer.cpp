#include "session/parted_answer.h"

namespace millrace {

using Kind = AnswerPart::Kind;

void append_part(std::vector<AnswerPart>& out, AnswerPart part) {
  const bool whole = part.kind == Kind::call || part.kind == Kind::ended;
  if (part.text.empty() && !whole) return;
  if (!whole && !out.empty() && out.back().kind == part.kind) {
    out.back().text += part.text;
  } else {
    out.push_back(std::move(part));
  }
}

#if MILLRACE_SESSION_TEXT

Result<PartedAnswer> PartedAnswer::create(const LoadedModel& model, std::span<const std::string> stops, bool continues,
                                          PartsAsked asked) {
  PartedAnswer answer;
  const bool reads = asked.chat && model.tokenizer() != nullptr && model.chat_template() != nullptr &&
                     (asked.tools != nullptr || model.calls().thinks() || !model.calls().lead.empty());
  if (!reads) {
    TRY(answer.plain_, Answer::create(model, stops, continues));
    return answer;
  }
  TRY(answer.stops_, StopStrings::create(stops));
  answer.tokenizer_ = model.tokenizer();
  answer.tools_ = std::move(asked.tools);
  answer.detokenizer_.emplace(*model.tokenizer(), DecodeOptions{.skip_special = true, .continues = continues});
  answer.reader_.emplace(model.calls(), answer.tools_ ? std::span(answer.tools_->tools) : std::span<const Tool>(),
                         asked.thinking == Thinking::open, continues);
  return answer;
}

bool PartedAnswer::push(Token token, std::vector<AnswerPart>& out) {
  piece_.clear();
  if (plain_) {
    const bool stopped = plain_->push(token, piece_);
    append_part(out, {Kind::content, piece_});
    return stopped;
  }
  if (stops_.stopped()) return true;
  if (tokenizer_->is_special(token)) {
    if (reader_->thinking()) {  // a character that is cut off here is part of what was thought
      piece_ = detokenizer_->finish();
      detokenizer_.emplace(*tokenizer_, DecodeOptions{.skip_special = true, .continues = true});
    }
    piece_ += control_bytes(token);
  } else {
    detokenizer_->push(token, piece_);
  }
  read_.clear();
  reader_->push(piece_, read_);
  return pass(read_, out);
}

void PartedAnswer::finish(std::vector<AnswerPart>& out) {
  piece_.clear();
  if (plain_) {
    plain_->finish(piece_);
    append_part(out, {Kind::content, piece_});
    return;
  }
  if (stops_.stopped()) return;
  read_.clear();
  reader_->push(detokenizer_->finish(), read_);
  reader_->finish(read_);
  if (pass(read_, out)) return;
  stops_.finish(piece_);
  append_part(out, {Kind::content, piece_});
}

// What was read, content through the stop strings; what they hold back comes before anything that is no content.
bool PartedAnswer::pass(std::vector<AnswerPart>& read, std::vector<AnswerPart>& out) {
  for (AnswerPart& part : read) {
    std::string text;
    if (part.kind != Kind::content) {
      stops_.flush(text);
      append_part(out, {Kind::content, std::move(text)});
      append_part(out, std::move(part));
      continue;
    }
    const bool stopped = stops_.push(part.text, text);
    append_part(out, {Kind::content, std::move(text)});
    if (stopped) return true;
  }
  return false;
}

bool PartedAnswer::thinking() const { return reader_ && reader_->thinking(); }
std::string_view PartedAnswer::stopped_by() const { return plain_ ? plain_->stops().found() : stops_.found(); }

#else

Result<PartedAnswer> PartedAnswer::create(const LoadedModel& model, std::span<const std::string> stops, bool continues,
                                          PartsAsked) {
  PartedAnswer answer;
  TRY(answer.plain_, Answer::create(model, stops, continues));
  return answer;
}

bool PartedAnswer::push(Token token, std::vector<AnswerPart>& out) {
  piece_.clear();
  const bool stopped = plain_->push(token, piece_);
  append_part(out, {Kind::content, piece_});
  return stopped;
}

void PartedAnswer::finish(std::vector<AnswerPart>& out) {
  piece_.clear();
  plain_->finish(piece_);
  append_part(out, {Kind::content, piece_});
}

bool PartedAnswer::thinking() const { return false; }
std::string_view PartedAnswer::stopped_by() const { return plain_->stops().found(); }

#endif

}  // namespace millrace
