// StreamWriter: the events of one stream, in turns: what came to a choice since its last turn. Where ids are wanted it
// puts an `id:` line on every event (event_id.h); where a stream is gone on with, it takes the answer from its
// beginning and passes over what the client has, up to the event. One thread at a time.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/choice.h"
#include "server/dialect.h"
#include "server/event_id.h"

namespace millrace {

class StreamWriter {
 public:
  // Ids are sealed with the key. The place's request half is filled; what is to be gone on with has all of it.
  struct Ids {
    SealKey key = {};
    EventPlace place;
    bool resumed = false;
  };

  StreamWriter(const Dialect& dialect, const LoadedModel& model, std::optional<Ids> ids)
      : dialect_(dialect), model_(model), ids_(std::move(ids)) {}

  bool gives_ids() const { return ids_.has_value(); }
  bool resumed() const { return ids_ && ids_->resumed; }
  const Ids& ids() const { return *ids_; }
  void found_cached(int64_t tokens) {  // of the prompt; told once, before the first turn
    if (ids_ && !ids_->resumed) ids_->place.cached = tokens;
  }
  // What the body came to, which has to be the same where the stream is gone on with; false if it is not.
  bool came_to(const Mark& answer);

  // The choices there are; false: there are not as many as the place says.
  bool begin(size_t choices);
  // A choice took an event (or, without one, has what it begins with): what was sent is passed over.
  void took(const Stamp& stamp, std::span<Choice> choices, size_t index, bool event);
  // What may be sent now. True: everything of every choice was.
  bool write(std::string& out, const Stamp& stamp, std::span<Choice> choices);
  void end(std::string& out, const Stamp& stamp, const Usage& usage);

 private:
  bool behind(size_t index, const Choice& choice) const;
  void turn(std::string& out, const Stamp& stamp, Choice& choice, size_t index);
  void number(std::string& out, const std::string& events, uint32_t choice, const SentSoFar& after);

  const Dialect& dialect_;
  const LoadedModel& model_;
  std::optional<Ids> ids_;
  std::vector<SentSoFar> sent_;   // what the client has, turn by turn
  std::vector<uint32_t> taken_;   // events that choices have
  std::vector<uint8_t> waiting_;  // what was sent is not passed over yet
  std::string ready_;             // the rest of a turn that was told in part
  bool half_ = false;             // such a turn is to come first
  int64_t events_ = 0;            // of turns before
};

}  // namespace millrace
