#include "server/choice.h"

#include <algorithm>

namespace millrace {
namespace {

size_t characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;  // all but those that go on with one
  }));
}

}  // namespace

Result<Choice> Choice::create(const LoadedModel& model, const RequestBody& asked) {
  TRY(Answer answer, Answer::create(model, asked.stops, asked.continues()));
  Choice choice(std::move(answer));
  choice.keep_ids_ = asked.return_ids;
  choice.keep_logprobs_ = !asked.hide_logprobs;
  return choice;
}

void Choice::clear() {
  text_.clear();
  ids_.clear();
  logprobs_.clear();
}

void Choice::end(std::string_view reason) {
  const size_t before = text_.size();
  answer_.finish(text_);
  offset_ += characters(std::string_view(text_).substr(before));
  reason_ = reason;
}

bool Choice::take(const Event& event) {
  if (done()) return false;
  cached_ = event.cached;
  if (event.error || event.finish == Finish::failed || event.finish == Finish::cancelled) {
    error_ = event.error ? *event.error : millrace::error(Code::internal, "the answer could not be finished");
    end("error");
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
    const size_t before = text_.size();
    const bool stopped = answer_.push(*event.token, text_);
    offset_ += characters(std::string_view(text_).substr(before));
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
