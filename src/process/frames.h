// Frames: what passes between a server and an engine in a process of its own. A frame is its length (four bytes, the
// least first) and its bytes: a kind and fixed fields, no pointers. What comes from the other side is not trusted:
// lengths are bounded, and a frame that is not exactly one is refused whole. Values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "backend/kv_form.h"
#include "base/mapped_file.h"
#include "base/result.h"
#include "cache/identity.h"
#include "engine/port.h"

namespace millrace {

// To the engine. The request's constraint travels as its source (Constraint::source()).
struct SubmitFrame {
  RequestId id = 0;
  bool tell_admission = false;
  Request request;
  std::string constraint;  // empty: none
};
struct CancelFrame {
  RequestId id = 0;
  int32_t choice = -1;
};
struct WatchFrame {};  // the states of pages are wanted
struct LoadAdapterFrame {
  int64_t ticket = 0;  // of the answer
  AdapterAsk ask;
};
struct UnloadAdapterFrame {
  int64_t ticket = 0;
  std::string name;
};
struct SaveCacheFrame {  // into the file that comes beside (receive_file)
  int64_t ticket = 0;
};
struct ResetCacheFrame {
  int64_t ticket = 0;
};

// From the engine.
struct ReadyFrame {
  EngineFacts facts;
  Identity pages, tokens, weights;  // the fingerprint's (session/fingerprint.h), and of the weights alone
  KvForm kv;
  std::vector<AdapterInfo> adapters;
  std::vector<FileState> files;  // that the weights were read from, as they were then
};
struct FailedFrame {  // it could not be started
  Error error;
};
struct EventsFrame {  // of one step; Event::request is the id of the SubmitFrame
  std::vector<RequestId> admitted;
  std::vector<Event> events;
};
struct PagesFrame {
  std::vector<PageState> pages;
};
struct ChangesFrame {  // what became of the prefix cache in a step
  std::vector<CacheChange> changes;
};
struct AdapterFrame {  // what became of loading or unloading one
  int64_t ticket = 0;
  std::optional<Error> error;
  AdapterInfo info;  // if one was loaded
};
struct CacheFrame {  // what became of saving the cache, or of emptying it
  int64_t ticket = 0;
  std::optional<Error> error;
  CacheFileSummary summary;
};

using Frame = std::variant<SubmitFrame, CancelFrame, WatchFrame, ReadyFrame, FailedFrame, EventsFrame, PagesFrame,
                           LoadAdapterFrame, UnloadAdapterFrame, AdapterFrame, SaveCacheFrame, ResetCacheFrame,
                           CacheFrame, ChangesFrame>;

inline constexpr size_t kMostFrameBytes = size_t{256} << 20;

// With its length in front.
void append_frame(const Frame& frame, std::string& out);
// Without.
Result<Frame> read_frame(std::string_view bytes);

// Cuts what arrives into frames.
class FrameBuffer {
 public:
  void add(std::string_view bytes) { bytes_ += bytes; }
  // The next whole frame, without its length; none if more must arrive. Valid until the next call of anything here.
  Result<std::optional<std::string_view>> next();

 private:
  std::string bytes_;
  size_t at_ = 0;
};

}  // namespace millrace
