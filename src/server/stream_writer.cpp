#include "server/stream_writer.h"

#include <algorithm>

namespace millrace {

bool StreamWriter::came_to(const Mark& answer) {
  if (!ids_) return true;
  if (ids_->resumed) return ids_->place.answer == answer;
  ids_->place.answer = answer;
  return true;
}

bool StreamWriter::begin(size_t choices) {
  sent_.resize(choices);
  taken_.resize(choices);
  waiting_.resize(choices);
  if (!resumed()) return true;
  const EventPlace& place = ids_->place;
  if (place.sent.size() != choices) return false;
  sent_ = place.sent;
  events_ = place.first;
  half_ = true;
  for (size_t i = 0; i < choices; ++i) waiting_[i] = sent_[i].begun ? 1 : 0;
  return true;
}

// The choice has not come to where it was sent.
bool StreamWriter::behind(size_t index, const Choice& choice) const {
  return taken_[index] < sent_[index].taken || (sent_[index].told && !choice.done());
}

void StreamWriter::took(const Stamp& stamp, std::span<Choice> choices, size_t index, bool event) {
  Choice& choice = choices[index];
  if (event) ++taken_[index];
  if (!resumed()) return;
  if (waiting_[index] != 0) {
    if (behind(index, choice)) return;
    waiting_[index] = 0;
    std::string sent;  // written for the sake of what the dialect remembers of a stream
    dialect_.append_first(sent, stamp, index);
    dialect_.append_choice(sent, stamp, model_, choice, index);
    choice.clear();
  }
  const EventPlace& place = ids_->place;
  if (!half_ || place.choice != index || taken_[index] < place.after.taken) return;
  if (place.after.told && !choice.done()) return;
  half_ = false;
  turn(ready_, stamp, choice, index);
}

// One choice's turn, numbered. Of the turn in which the stream broke, only what the client has not got.
void StreamWriter::turn(std::string& out, const Stamp& stamp, Choice& choice, size_t index) {
  std::string events;
  dialect_.number(stamp, events_);
  if (!sent_[index].begun) dialect_.append_first(events, stamp, index);
  dialect_.append_choice(events, stamp, model_, choice, index);
  choice.clear();
  number(out, events, static_cast<uint32_t>(index), {taken_[index], true, choice.done()});
}

void StreamWriter::number(std::string& out, const std::string& events, uint32_t choice, const SentSoFar& after) {
  if (ids_) {
    EventPlace place = ids_->place;
    const bool same = resumed() && place.first == events_ && place.choice == choice;
    const int64_t has = same ? place.told : 0;
    place.first = events_;
    place.choice = choice;
    place.after = after;
    place.sent = sent_;
    place.told = 0;
    for (size_t at = 0; at < events.size();) {
      const size_t end = events.find("\n\n", at);
      const size_t next = end == std::string::npos ? events.size() : end + 2;
      if (++place.told > has) {
        out += "id: ";
        out += seal_place(place, ids_->key);
        out += '\n';
        out.append(events, at, next - at);
      }
      at = next;
    }
    events_ += place.told;
  } else {
    out += events;
  }
  if (choice < sent_.size()) sent_[choice] = after;
}

bool StreamWriter::write(std::string& out, const Stamp& stamp, std::span<Choice> choices) {
  out += ready_;
  ready_.clear();
  const bool all = !choices.empty() && std::ranges::all_of(choices, [](const Choice& each) { return each.done(); });
  if (all &&
      resumed()) {  // an id that was made up may name a place past the answer's end: the stream ends all the same
    half_ = false;
    std::ranges::fill(waiting_, uint8_t{0});
  }
  const bool held = half_ && ids_->place.choice < choices.size();
  for (size_t i = 0; i < choices.size(); ++i) {
    Choice& choice = choices[i];
    if (held || waiting_[i] != 0 || sent_[i].told) continue;
    if (choice.empty() && !choice.done()) continue;
    if (ids_) {
      turn(out, stamp, choice, i);
      continue;
    }
    if (!sent_[i].begun) dialect_.append_first(out, stamp, i);
    dialect_.append_choice(out, stamp, model_, choice, i);
    choice.clear();
    sent_[i] = {taken_[i], true, choice.done()};
  }
  return all && !held;
}

void StreamWriter::end(std::string& out, const Stamp& stamp, const Usage& usage) {
  if (!ids_) return dialect_.append_end(out, stamp, usage);
  std::string events;
  dialect_.number(stamp, events_);
  dialect_.append_end(events, stamp, usage);
  number(out, events, static_cast<uint32_t>(sent_.size()), {});
}

}  // namespace millrace
