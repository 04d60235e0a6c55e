#include "bench/serve_answer.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace millrace {
namespace {

constexpr size_t kMostHead = 64 << 10, kMostLine = 16 << 20;

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

template <class T>
bool number_of(std::string_view text, T& out, int base = 10) {
  auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return failed == std::errc() && end == text.data() + text.size() && !text.empty();
}

// A text under this key, or nothing.
std::string_view text_under(const Json& object, std::string_view key) {
  const Json* found = find(object, key);
  return found != nullptr && found->is_string() ? std::string_view(found->get_string()) : std::string_view();
}

}  // namespace

Result<void> ResponseReader::read_head(std::string_view head) {
  size_t end = head.find('\n');
  std::string_view first = trimmed(head.substr(0, end));
  if (first.size() < 12 || !first.starts_with("HTTP/1.") || !number_of(first.substr(9, 3), status_)) {
    return error(Code::invalid, "the server does not speak HTTP/1.1: '{}'", first.substr(0, 60));
  }
  keeps_open_ = first[7] == '1';
  bool chunked = false, sized = false;
  while (end != std::string_view::npos) {
    head.remove_prefix(end + 1);
    end = head.find('\n');
    std::string_view line = head.substr(0, end);
    size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    std::string_view name = trimmed(line.substr(0, colon)), value = trimmed(line.substr(colon + 1));
    if (same_word(name, "transfer-encoding")) chunked = same_word(value, "chunked");
    if (same_word(name, "connection")) keeps_open_ = !same_word(value, "close");
    if (same_word(name, "content-length")) {
      sized = number_of(value, left_);
      if (!sized) return error(Code::invalid, "the server states a length of '{}'", value.substr(0, 40));
    }
  }
  if (status_ / 100 == 1) {
    state_ = State::head;  // an interim answer; the real one follows
  } else if (chunked) {
    state_ = State::chunk_size;
  } else if (sized || status_ == 204 || status_ == 304) {
    state_ = left_ > 0 ? State::length : State::complete;
  } else {
    state_ = State::until_close;
    keeps_open_ = false;
  }
  return {};
}

Result<bool> ResponseReader::take_line(std::string_view& bytes) {
  size_t end = bytes.find('\n');
  line_ += bytes.substr(0, end);
  bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
  if (line_.size() > kMostHead) return error(Code::invalid, "a line of the answer's framing has no end");
  return end != std::string_view::npos;
}

Result<void> ResponseReader::read_chunk_size() {
  std::string_view size = trimmed(std::string_view(line_).substr(0, line_.find(';')));
  if (!number_of(size, left_, 16)) return error(Code::invalid, "'{}' is no size of a chunk", size.substr(0, 40));
  state_ = left_ > 0 ? State::chunk : State::trailer;
  line_.clear();
  return {};
}

Result<void> ResponseReader::feed(std::string_view bytes, std::string& body) {
  begun_ = begun_ || !bytes.empty();
  while (!bytes.empty() && state_ != State::complete) {
    if (state_ == State::length || state_ == State::chunk || state_ == State::until_close) {
      size_t part = state_ == State::until_close ? bytes.size() : std::min<uint64_t>(left_, bytes.size());
      body += bytes.substr(0, part);
      bytes.remove_prefix(part);
      if (state_ == State::until_close) continue;
      left_ -= part;
      if (left_ == 0) state_ = state_ == State::chunk ? State::chunk_end : State::complete;
      continue;
    }
    TRY(bool whole, take_line(bytes));
    if (!whole) return {};
    bool empty = trimmed(std::string_view(line_).substr(line_.rfind('\n') + 1)).empty();
    if (state_ == State::head) {
      line_ += '\n';
      if (!empty) continue;  // lines gather until an empty one
      std::string head = std::exchange(line_, {});
      TRY_VOID(read_head(head));
    } else if (state_ == State::chunk_size) {
      TRY_VOID(read_chunk_size());
    } else {
      if (state_ == State::chunk_end) state_ = State::chunk_size;
      if (state_ == State::trailer && empty) state_ = State::complete;
      line_.clear();
    }
  }
  return {};
}

Result<void> ResponseReader::closed() {
  keeps_open_ = false;
  if (state_ == State::until_close) state_ = State::complete;
  if (state_ == State::complete) return {};
  return error(Code::io, "the server closed the connection in the middle of its answer");
}

Result<void> AnswerReader::feed(std::string_view bytes, double now) {
  while (!bytes.empty()) {
    size_t end = bytes.find('\n');
    line_ += bytes.substr(0, end);
    if (line_.size() > kMostLine) return error(Code::invalid, "an event of the answer has no end");
    if (end == std::string_view::npos) return {};
    bytes.remove_prefix(end + 1);
    std::string line = std::exchange(line_, {});
    std::string_view view = trimmed(line);
    if (view.starts_with("data:")) TRY_VOID(take(trimmed(view.substr(5)), now));
  }
  return {};
}

void AnswerReader::note_usage(const Json& usage) {
  auto count = [](const Json& object, std::string_view key, int64_t& out) {
    if (auto got = get_int(object, key, out); got.ok()) out = *got;
  };
  count(usage, "completion_tokens", record_.output_tokens);
  count(usage, "prompt_tokens", record_.prompt_tokens);
  if (const Json* details = find(usage, "prompt_tokens_details"))
    count(*details, "cached_tokens", record_.cached_tokens);
}

Result<void> AnswerReader::take(std::string_view data, double now) {
  if (data == "[DONE]") {
    done_ = true;
    return {};
  }
  TRY(Json json, parse_json(data));
  if (const Json* failed = find(json, "error")) {
    return error(Code::internal, "{}", failed->is_object() ? text_under(*failed, "message") : data.substr(0, 200));
  }
  if (const Json* usage = find(json, "usage"); usage != nullptr && usage->is_object()) note_usage(*usage);
  const Json* choices = find(json, "choices");
  if (choices == nullptr || !choices->is_array() || choices->get_array().empty()) return {};
  const Json& choice = choices->get_array()[0];
  const Json* delta = chat_ ? find(choice, "delta") : &choice;
  std::string_view text = delta == nullptr ? "" : text_under(*delta, chat_ ? "content" : "text");
  std::string_view thought = delta == nullptr || !chat_ ? "" : text_under(*delta, "reasoning_content");
  // A completion's token may have no text of its own; a chat's first event has the role only, its last the reason.
  bool token = !text.empty() || !thought.empty() || (!chat_ && find(choice, "finish_reason") == nullptr);
  if (!token) return {};
  if (pieces_++ == 0) {
    record_.first_token = now;
  } else {
    record_.next_tokens.push_back(now - last_);
  }
  last_ = now;
  record_.text += thought;
  record_.text += text;
  return {};
}

ServeRecord AnswerReader::finish() {
  record_.ok = pieces_ > 0;
  if (!record_.ok) record_.error = "the answer has no token";
  if (record_.output_tokens == 0) record_.output_tokens = pieces_;
  record_.latency = last_;
  return std::exchange(record_, {});
}

std::string error_message(int status, std::string_view body) {
  std::string message(body.substr(0, 300));
  if (auto json = parse_json(body); json.ok()) {
    const Json* inner = find(*json, "error");
    if (inner != nullptr && inner->is_object() && find(*inner, "message") != nullptr) {
      message = text_under(*inner, "message");
    }
  }
  return fmt::format("{}: {}", status, message);
}

}  // namespace millrace
