// Decoder: how the texts of tokens become text again, as the steps of a tokenizer.json say. The Decoder describes it
// and is immutable; a DecodeStream does it, token by token, for one thread. A stream gives out text as soon as no later
// token can change it, so the text of a whole and of its parts is the same by construction.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/pattern.h"

namespace millrace {

// One step at work. Text comes in fragments, `ends` marking the last one of a token; what goes on is handed to the
// next.
class DecodeStep {
 public:
  using Next = std::function<void(std::string_view fragment, bool ends)>;
  virtual ~DecodeStep() = default;
  virtual void push(std::string_view fragment, bool ends, const Next& next) = 0;
  virtual void finish(const Next&) {}
};

class DecodeStream {
 public:
  // Appends to `out` what is settled. The text of a token is valid UTF-8.
  void push(std::string_view token, std::string& out) { feed(0, token, true, out); }
  void finish(std::string& out);

 private:
  friend class Decoder;
  void feed(size_t step, std::string_view fragment, bool ends, std::string& out);
  std::vector<std::unique_ptr<DecodeStep>> steps_;
};

class Decoder {
 public:
  // No decoder at all puts spaces between tokens.
  static Result<Decoder> from_json(const Json& json);

  void add_replace(Pattern pattern, std::string content);
  void add_byte_fallback();  // <0x41> is the byte 0x41
  void add_fuse();           // one text from here on
  void add_strip(std::string character, size_t start, size_t stop);
  void add_byte_level();
  void add_word_piece(std::string prefix, bool cleanup);

  // `continues`: the tokens follow others, so their first one is not stripped like the start of a text.
  DecodeStream start(bool continues) const;
  bool has_byte_fallback() const { return byte_fallback_; }
  bool has_byte_level() const { return byte_level_; }

 private:
  using Make = std::function<std::unique_ptr<DecodeStep>(bool continues)>;
  Result<void> add_json(const Json& json, int depth);

  std::vector<Make> steps_;
  double growth_ = 1;  // how many times as long its Replace steps can make a text
  bool byte_fallback_ = false, byte_level_ = false;
  bool fused_ = false;  // all tokens are one by now
};

}  // namespace millrace
