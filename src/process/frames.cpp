#include "process/frames.h"

#include <array>
#include <cstring>
#include <limits>
#include <type_traits>

namespace millrace {
namespace {

// The fields of a frame, visited in one order by a writer and a reader: what one writes the other reads.
class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  template <class T>
  requires std::is_arithmetic_v<T>
  void value(const T& value) { out_.append(reinterpret_cast<const char*>(&value), sizeof(T)); }
  void text(const std::string& text) {
    value(static_cast<uint32_t>(text.size()));
    out_ += text;
  }
  template <class T, class Each>
  void list(const std::vector<T>& list, Each each) {
    value(static_cast<uint32_t>(list.size()));
    for (const T& item : list) each(item);
  }
  void bytes(const void* from, size_t size) { out_.append(static_cast<const char*>(from), size); }

 private:
  std::string& out_;
};

class Reader {
 public:
  explicit Reader(std::string_view in) : in_(in) {}

  template <class T>
  requires std::is_arithmetic_v<T>
  void value(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      uint8_t byte = 0;
      bytes(&byte, 1);
      broken_ |= byte > 1;
      value = byte == 1;
    } else {
      bytes(&value, sizeof(T));
    }
  }
  void text(std::string& text) {
    const size_t size = count(1);
    text.assign(in_.substr(0, size));
    in_.remove_prefix(size);
  }
  template <class T, class Each>
  void list(std::vector<T>& list, Each each) {
    // Items are made as they are read: memory follows what came, not what a length promised.
    size_t left = count(sizeof(T) < 16 ? sizeof(T) : 4);
    if (sizeof(T) < 16) list.reserve(left);
    for (; left > 0 && !broken_; --left) each(list.emplace_back());
  }
  void bytes(void* to, size_t size) {
    broken_ |= size > in_.size();
    if (broken_) return;
    std::memcpy(to, in_.data(), size);
    in_.remove_prefix(size);
  }
  void refuse() { broken_ = true; }
  bool good() const { return !broken_ && in_.empty(); }

 private:
  // How many items follow; never more than the bytes that are left could hold.
  size_t count(size_t least_bytes) {
    uint32_t found = 0;
    value(found);
    broken_ |= size_t{found} * least_bytes > in_.size();
    return broken_ ? 0 : found;
  }
  std::string_view in_;
  bool broken_ = false;
};

template <class Io, class T>
void tokens(Io& io, T& list) {
  io.list(list, [&](auto& token) { io.value(token); });
}

// An enum as a byte; what is past the last one is refused.
template <class T>
void choice(Writer& io, const T& value, int) {
  io.value(static_cast<uint8_t>(value));
}
template <class T>
void choice(Reader& io, T& value, int last) {
  uint8_t byte = 0;
  io.value(byte);
  if (byte > last) io.refuse();
  value = static_cast<T>(byte);
}

template <class T, class Each>
void maybe(Writer& io, const std::optional<T>& value, Each each) {
  io.value(value.has_value());
  if (value) each(*value);
}
template <class T, class Each>
void maybe(Reader& io, std::optional<T>& value, Each each) {
  bool there = false;
  io.value(there);
  if (there) each(value.emplace());
}

template <class Io, class T>
void fields_of_error(Io& io, T& error) {
  choice(io, error.code, static_cast<int>(Code::internal));
  io.text(error.message);
}

template <class Io, class S>
void fields_of_sampling(Io& io, S& s) {
  for (auto member : {&Sampling::temperature, &Sampling::top_n_sigma, &Sampling::typical, &Sampling::top_p,
                      &Sampling::min_p, &Sampling::xtc_probability, &Sampling::xtc_threshold, &Sampling::repetition,
                      &Sampling::presence, &Sampling::frequency, &Sampling::dry_multiplier, &Sampling::dry_base,
                      &Sampling::mirostat_tau, &Sampling::mirostat_eta})
    io.value(s.*member);
  for (auto member : {&Sampling::top_k, &Sampling::penalty_window, &Sampling::dry_allowed_length, &Sampling::dry_window,
                      &Sampling::mirostat})
    io.value(s.*member);
  tokens(io, s.dry_breakers);
  tokens(io, s.banned);
  io.list(s.bias, [&](auto& bias) {
    io.value(bias.token);
    io.value(bias.bias);
  });
  io.value(s.seed);
}

// A field that is added must travel too.
static_assert(sizeof(Sampling) == 224 && sizeof(Request) == 512);

template <class Io, class R>
void fields_of_request(Io& io, R& r) {
  tokens(io, r.prompt);
  for (auto member :
       {&Request::max_tokens, &Request::min_tokens, &Request::choices, &Request::logprobs, &Request::priority})
    io.value(r.*member);
  tokens(io, r.stop_tokens);
  fields_of_sampling(io, r.sampling);
  tokens(io, r.prediction);
  io.value(r.fill.steps);
  io.value(r.fill.block);
  choice(io, r.fill.remasking, static_cast<int>(Remasking::order));
  io.text(r.tenant);
  io.text(r.adapter);
  io.value(r.adapter_strength);
  io.bytes(r.root.bytes.data(), r.root.bytes.size());
  io.value(r.targets.first_token);
  io.value(r.targets.next_token);
  io.value(r.again);
  io.list(r.resumed, [&](auto& before) {
    tokens(io, before.tokens);
    io.value(before.mu);
    io.value(before.finished);
  });
}

template <class Io, class E>
void fields_of_event(Io& io, E& event) {
  io.value(event.request);
  io.value(event.choice);
  maybe(io, event.token, [&](auto& token) { io.value(token); });
  maybe(io, event.logprobs, [&](auto& report) {
    io.value(report.chosen);
    io.list(report.top, [&](auto& one) {
      io.value(one.id);
      io.value(one.logprob);
    });
  });
  choice(io, event.finish, static_cast<int>(Finish::failed));
  maybe(io, event.error, [&](auto& error) { fields_of_error(io, error); });
  io.value(event.cached);
  io.value(event.mu);
}

template <class Io, class F>
void fields_of_facts(Io& io, F& facts) {
  for (auto member : {&Limits::step_tokens, &Limits::max_sequences, &Limits::max_waiting, &Limits::max_choices,
                      &Limits::context, &Limits::max_drafts, &Limits::step_drafts})
    io.value(facts.limits.*member);
  io.value(facts.limits.whole_windows);
  io.value(facts.limits.fills);
  io.value(facts.limits.shifted);
  io.value(facts.limits.page_move_seconds);
  io.value(facts.pages);
  io.value(facts.page_tokens);
  io.value(facts.node_tokens);
  io.value(facts.vocab);
  io.value(facts.token_bytes);
  io.value(facts.bytes);
}

template <class Io, class I>
void fields_of_identity(Io& io, I& identity) {
  io.bytes(identity.bytes.data(), identity.bytes.size());
}

template <class Io, class A>
void fields_of_adapter(Io& io, A& info) {
  io.text(info.name);
  io.text(info.path);
  io.value(info.strength);
  io.value(info.rank);
  io.value(info.bytes);
  fields_of_identity(io, info.content);
}

template <class Io, class S>
void fields_of_state(Io& io, S& state) {
  for (auto member : {&FileState::device, &FileState::inode, &FileState::size, &FileState::links})
    io.value(state.*member);
  io.value(state.written);
  io.value(state.changed);
}

template <class Io, class F>
void fields(Io& io, F& frame) {
  using T = std::remove_const_t<F>;
  if constexpr (std::is_same_v<T, SubmitFrame>) {
    io.value(frame.id);
    io.value(frame.tell_admission);
    fields_of_request(io, frame.request);
    io.text(frame.constraint);
  } else if constexpr (std::is_same_v<T, CancelFrame>) {
    io.value(frame.id);
    io.value(frame.choice);
  } else if constexpr (std::is_same_v<T, ReadyFrame>) {
    fields_of_facts(io, frame.facts);
    for (auto* identity : {&frame.pages, &frame.tokens, &frame.weights}) fields_of_identity(io, *identity);
    choice(io, frame.kv.k, kDTypes - 1);
    choice(io, frame.kv.v, kDTypes - 1);
    io.value(frame.kv.turned);
    io.list(frame.adapters, [&](auto& info) { fields_of_adapter(io, info); });
    io.list(frame.files, [&](auto& state) { fields_of_state(io, state); });
  } else if constexpr (std::is_same_v<T, FailedFrame>) {
    fields_of_error(io, frame.error);
  } else if constexpr (std::is_same_v<T, EventsFrame>) {
    io.list(frame.admitted, [&](auto& id) { io.value(id); });
    io.list(frame.events, [&](auto& event) { fields_of_event(io, event); });
  } else if constexpr (std::is_same_v<T, PagesFrame>) {
    io.list(frame.pages, [&](auto& page) { choice(io, page, static_cast<int>(PageState::cached)); });
  } else if constexpr (std::is_same_v<T, LoadAdapterFrame>) {
    io.value(frame.ticket);
    io.text(frame.ask.name);
    io.text(frame.ask.path);
    io.value(frame.ask.strength);
    maybe(io, frame.ask.content, [&](auto& content) { fields_of_identity(io, content); });
  } else if constexpr (std::is_same_v<T, UnloadAdapterFrame>) {
    io.value(frame.ticket);
    io.text(frame.name);
  } else if constexpr (std::is_same_v<T, AdapterFrame>) {
    io.value(frame.ticket);
    maybe(io, frame.error, [&](auto& error) { fields_of_error(io, error); });
    fields_of_adapter(io, frame.info);
  } else if constexpr (std::is_same_v<T, ChangesFrame>) {
    io.list(frame.changes, [&](auto& change) {
      choice(io, change.kind, static_cast<int>(CacheChange::Kind::cleared));
      io.value(change.away);
      io.value(change.node);
      io.value(change.parent);
      io.list(change.tokens, [&](auto& token) { io.value(token); });
    });
  } else if constexpr (std::is_same_v<T, SaveCacheFrame> || std::is_same_v<T, ResetCacheFrame>) {
    io.value(frame.ticket);
  } else if constexpr (std::is_same_v<T, CacheFrame>) {
    io.value(frame.ticket);
    maybe(io, frame.error, [&](auto& error) { fields_of_error(io, error); });
    io.value(frame.summary.nodes);
    io.value(frame.summary.tokens);
    io.value(frame.summary.pages);
    io.value(frame.summary.bytes);
  } else {
    static_assert(std::is_same_v<T, WatchFrame>);
  }
}

template <size_t... Kinds>
Result<Frame> read_kind(size_t kind, Reader& reader, std::index_sequence<Kinds...>) {
  Frame frame;
  const bool known = ((kind == Kinds ? (fields(reader, frame.emplace<Kinds>()), true) : false) || ...);
  if (!known || !reader.good()) return error(Code::corrupt, "a frame of kind {} is not whole", kind);
  return frame;
}

}  // namespace

void append_frame(const Frame& frame, std::string& out) {
  const size_t begin = out.size();
  out.append(sizeof(uint32_t), '\0');
  out += static_cast<char>(frame.index());
  Writer writer(out);
  std::visit([&](const auto& kind) { fields(writer, kind); }, frame);
  const auto size = static_cast<uint32_t>(out.size() - begin - sizeof(uint32_t));
  std::memcpy(out.data() + begin, &size, sizeof(size));
}

Result<Frame> read_frame(std::string_view bytes) {
  if (bytes.empty()) return error(Code::corrupt, "a frame without a kind");
  Reader reader(bytes.substr(1));
  return read_kind(static_cast<uint8_t>(bytes[0]), reader, std::make_index_sequence<std::variant_size_v<Frame>>());
}

Result<std::optional<std::string_view>> FrameBuffer::next() {
  if (at_ > (size_t{1} << 16) || at_ == bytes_.size()) {
    bytes_.erase(0, at_);
    at_ = 0;
  }
  const std::string_view left = std::string_view(bytes_).substr(at_);
  uint32_t size = 0;
  if (left.size() < sizeof(size)) return std::optional<std::string_view>();
  std::memcpy(&size, left.data(), sizeof(size));
  if (size == 0 || size > kMostFrameBytes) return error(Code::corrupt, "a frame of {} bytes", size);
  if (left.size() < sizeof(size) + size) return std::optional<std::string_view>();
  at_ += sizeof(size) + size;
  return std::optional(left.substr(sizeof(size), size));
}

}  // namespace millrace
