#include "server/choice.h"

#include <algorithm>

namespace millrace {
namespace {

using Kind = AnswerPart::Kind;

// Letters and digits (at most 32) that no other call has, most likely.
std::string call_text(std::string_view answer, int call, size_t size) {
  constexpr std::string_view kLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  Digest digest;
  digest.add_sized(answer);
  digest.add_sized(fmt::format("call {}", call));
  const Identity made = digest.finish();
  std::string text(size, '0');
  for (size_t i = 0; i < size; ++i) text[i] = kLetters[made.bytes[i] % kLetters.size()];
  return text;
}

size_t characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;  // all but those that go on with one
  }));
}

}  // namespace

Result<Choice> Choice::create(const LoadedModel& model, const RequestBody& asked, Thinking thinking) {
  TRY(PartedAnswer answer, PartedAnswer::create(model, asked.stops, asked.continues(),
                                                {.chat = asked.chat, .tools = asked.tools, .thinking = thinking}));
  Choice choice(std::move(answer));
  choice.keep_ids_ = asked.return_ids;
  choice.keep_logprobs_ = !asked.hide_logprobs;
#if MILLRACE_SESSION_TEXT
  if (asked.tools)
    choice.ids_of_ = model.calls().named_ids ? Ids::named : model.calls().has_ids() ? Ids::nine : Ids::own;
#endif
  return choice;
}

void Choice::score_prompt(std::span<const Token> prompt) {
  prompt_logprobs_.push_back({prompt[0], {}, 0});
  scored_ = prompt.size();
}

void Choice::clear() {
  parts_.clear();
  ids_.clear();
  logprobs_.clear();
  told_calls_ = calls_;
}

void Choice::put_in_front(std::string_view text) {
  echoed_ = true;
  if (!text.empty()) parts_.insert(parts_.begin(), {Kind::content, std::string(text)});
}

std::string Choice::text() const {
  std::string text;
  for (const AnswerPart& part : parts_)
    if (part.kind == Kind::content) text += part.text;
  return text;
}

// The parts from `first` on are new, and so is what the one before them has after `bytes`.
void Choice::look_at(size_t first, size_t bytes) {
  if (first > 0 && parts_[first - 1].kind == Kind::content)
    offset_ += characters(std::string_view(parts_[first - 1].text).substr(bytes));
  for (size_t i = first; i < parts_.size(); ++i) {
    AnswerPart& part = parts_[i];
    if (part.kind == Kind::content) offset_ += characters(part.text);
    whole_call_ |= part.kind == Kind::ended;
    if (part.kind != Kind::call) continue;
    if (ids_of_ == Ids::named) part.id = fmt::format("functions.{}:{}", part.text, calls_);
    if (part.id.empty())
      part.id = ids_of_ == Ids::nine ? call_text(name_, calls_, 9) : "call_" + call_text(name_, calls_, 24);
    ++calls_;
  }
}

void Choice::end(std::string_view reason) {
  const size_t first = parts_.size(), bytes = parts_.empty() ? 0 : parts_.back().text.size();
  answer_.finish(parts_);
  look_at(first, bytes);
  reason_ = reason == "stop" && whole_call_ ? "tool_calls" : reason;
}

bool Choice::take(const Event& event) {
  if (done()) return false;
  cached_ = event.cached;
  if (event.error || event.finish == Finish::failed || event.finish == Finish::cancelled) {
    error_ = event.error ? *event.error : millrace::error(Code::internal, "the answer could not be finished");
    end("error");
    return false;
  }
  if (event.token && prompt_logprobs_.size() < scored_) {
    if (event.logprobs) prompt_logprobs_.push_back({*event.token, *event.logprobs, 0});
    return false;
  }
  if (event.token) {
    ++tokens_;
    if (event.logprobs) logprob_sum_ += static_cast<double>(event.logprobs->chosen);
    // A stop token ends the answer and is not part of it.
    if (event.finish == Finish::stop) {
      end("stop");
      return false;
    }
    if (prediction_) prediction_->take(*event.token);
    if (keep_ids_) ids_.push_back(*event.token);
    if (event.logprobs && keep_logprobs_) logprobs_.push_back({*event.token, *event.logprobs, offset_});
    const size_t first = parts_.size(), bytes = parts_.empty() ? 0 : parts_.back().text.size();
    const bool thinking = answer_.thinking();
    const bool stopped = answer_.push(*event.token, parts_);
    if (thinking && answer_.thinking()) ++reasoning_tokens_;  // the marks aside
    look_at(first, bytes);
    if (stopped) {
      end("stop");
      return event.finish == Finish::none;
    }
  }
  if (event.finish == Finish::length) end("length");
  if (event.finish == Finish::stop) end("stop");
  return false;
}

}  // namespace millrace
