#include "text/decoder.h"

#include <optional>

#include "text/byte_level.h"
#include "text/unicode.h"

namespace millrace {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr int64_t kDecodeSteps = 1'000'000;  // of a regular expression on the text of one token

// Gathers the fragments of a token; true once it is whole.
class Gather {
 public:
  bool add(std::string_view fragment, bool ends) {
    if (done_) held_.clear();
    held_ += fragment;
    return done_ = ends;
  }
  const std::string& text() const { return held_; }

 private:
  std::string held_;
  bool done_ = false;
};

class ReplaceStep : public DecodeStep {
 public:
  ReplaceStep(Pattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}

  void push(std::string_view fragment, bool ends, const Next& next) override {
    if (!gather_.add(fragment, ends)) return;  // a match may span fragments
    std::string out;
    const std::string& text = gather_.text();
    scratch_.reset(text.size(), kDecodeSteps);
    for_each_part(text, pattern_, scratch_, [&](size_t begin, size_t end, bool match) {
      match ? out.append(content_) : out.append(text, begin, end - begin);
    });
    next(out, true);
  }

 private:
  Pattern pattern_;
  std::string content_;
  RegexScratch scratch_;
  Gather gather_;
};

// Tokens <0x00> to <0xFF> in a row are bytes of one text; if that is not UTF-8, each becomes U+FFFD. The whole row
// counts, so it is held until it ends.
class ByteFallbackStep : public DecodeStep {
 public:
  void push(std::string_view fragment, bool ends, const Next& next) override {
    if (!gather_.add(fragment, ends)) return;
    if (std::optional<char> byte = byte_of(gather_.text())) {
      bytes_.push_back(*byte);
      return;
    }
    flush(next);
    next(gather_.text(), true);
  }
  void finish(const Next& next) override { flush(next); }

 private:
  static std::optional<char> byte_of(std::string_view text) {
    if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
    int value = 0;
    for (char c : text.substr(3, 2)) {
      const char lower = static_cast<char>(c | 32);
      const bool digit = c >= '0' && c <= '9', letter = lower >= 'a' && lower <= 'f';
      if (!digit && !letter) return std::nullopt;
      value = value * 16 + (digit ? c - '0' : lower - 'a' + 10);
    }
    return static_cast<char>(value);
  }
  void flush(const Next& next) {
    if (bytes_.empty()) return;
    if (is_valid_utf8(bytes_)) {
      next(bytes_, true);
    } else {
      for (size_t i = 0; i < bytes_.size(); ++i) next(kReplacement, true);
    }
    bytes_.clear();
  }

  Gather gather_;
  std::string bytes_;
};

class FuseStep : public DecodeStep {
 public:
  void push(std::string_view fragment, bool, const Next& next) override { next(fragment, false); }
  void finish(const Next& next) override { next({}, true); }
};

class StripStep : public DecodeStep {
 public:
  StripStep(std::string character, size_t start, size_t stop, bool inside)
      : character_(std::move(character)), start_(start), stop_(stop), left_(inside ? 0 : start) {}

  void push(std::string_view fragment, bool ends, const Next& next) override {
    if (stop_ > 0) {
      if (!gather_.add(fragment, ends)) return;
      fragment = gather_.text();
    }
    while (left_ > 0 && !fragment.empty()) {
      if (!fragment.starts_with(character_)) {
        left_ = 0;
      } else {
        fragment.remove_prefix(character_.size());
        --left_;
      }
    }
    for (size_t i = 0; i < stop_ && fragment.ends_with(character_); ++i) fragment.remove_suffix(character_.size());
    if (ends) left_ = start_;
    next(fragment, ends);
  }

 private:
  std::string character_;
  size_t start_, stop_, left_;  // left_: how many may still go from the start of this token
  Gather gather_;
};

class MetaspaceStep : public DecodeStep {
 public:
  MetaspaceStep(std::string mark, bool strips, bool inside) : mark_(std::move(mark)), first_(strips && !inside) {}

  void push(std::string_view fragment, bool ends, const Next& next) override {
    std::string out;
    for (size_t at = 0; at < fragment.size();) {
      if (fragment.substr(at).starts_with(mark_)) {
        if (!first_) out.push_back(' ');
        at += mark_.size();
      } else {
        out.push_back(fragment[at++]);
      }
    }
    if (ends) first_ = false;
    next(out, ends);
  }

 private:
  std::string mark_;
  bool first_;
};

class ByteLevelStep : public DecodeStep {
 public:
  void push(std::string_view fragment, bool ends, const Next& next) override {
    if (!gather_.add(fragment, ends)) return;
    if (!append_from_byte_level(bytes_, gather_.text())) bytes_ += gather_.text();
    give(true, next);
  }
  void finish(const Next& next) override {
    give(false, next);
    next({}, true);
  }

 private:
  void give(bool more, const Next& next) {
    std::string out;
    bytes_.erase(0, append_valid_utf8(out, bytes_, more));
    if (!out.empty()) next(out, false);
  }

  Gather gather_;
  std::string bytes_;  // an unfinished character
};

std::string clean_up(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kChanges[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (const auto& [from, to] : kChanges) {
    for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
  }
  return text;
}

class WordPieceStep : public DecodeStep {
 public:
  WordPieceStep(std::string prefix, bool cleanup, bool inside)
      : prefix_(std::move(prefix)), cleanup_(cleanup), first_(!inside) {}

  void push(std::string_view fragment, bool ends, const Next& next) override {
    if (!gather_.add(fragment, ends)) return;
    std::string token = gather_.text();
    if (!first_) token = token.starts_with(prefix_) ? token.substr(prefix_.size()) : " " + token;
    first_ = false;
    next(cleanup_ ? clean_up(std::move(token)) : token, true);
  }

 private:
  std::string prefix_;
  bool cleanup_, first_;
  Gather gather_;
};

// A suffix marks the end of a word: it becomes a space, except in the last token.
class SuffixStep : public DecodeStep {
 public:
  explicit SuffixStep(std::string suffix) : suffix_(std::move(suffix)) {}

  void push(std::string_view fragment, bool ends, const Next& next) override {
    if (!gather_.add(fragment, ends)) return;
    if (held_) next(replaced(*held_, " "), true);
    held_ = gather_.text();
  }
  void finish(const Next& next) override {
    if (held_) next(replaced(*held_, ""), true);
  }

 private:
  std::string replaced(std::string text, std::string_view by) const {
    if (suffix_.empty()) return text;
    for (size_t at = text.find(suffix_); at != text.npos; at = text.find(suffix_, at + by.size()))
      text.replace(at, suffix_.size(), by);
    return text;
  }

  std::string suffix_;
  std::optional<std::string> held_;
  Gather gather_;
};

class SpacedStep : public DecodeStep {
 public:
  explicit SpacedStep(bool inside) : first_(!inside) {}
  void push(std::string_view fragment, bool ends, const Next& next) override {
    if (begins_ && !first_) next(" ", false);
    first_ = false;
    begins_ = ends;
    next(fragment, ends);
  }

 private:
  bool first_, begins_ = true;
};

}  // namespace

void DecodeStream::feed(size_t step, std::string_view fragment, bool ends, std::string& out) {
  if (step == steps_.size()) {
    out += fragment;
    return;
  }
  steps_[step]->push(fragment, ends, [&](std::string_view text, bool last) { feed(step + 1, text, last, out); });
}

void DecodeStream::finish(std::string& out) {
  for (size_t step = 0; step < steps_.size(); ++step) {
    steps_[step]->finish([&](std::string_view text, bool last) { feed(step + 1, text, last, out); });
  }
}

DecodeStream Decoder::start(bool continues) const {
  DecodeStream stream;
  for (const Make& make : steps_) stream.steps_.push_back(make(continues));
  return stream;
}

void Decoder::add_replace(Pattern pattern, std::string content) {
  steps_.push_back([pattern = std::move(pattern), content = std::move(content)](bool) {
    return std::make_unique<ReplaceStep>(pattern, content);
  });
}
void Decoder::add_byte_fallback() {
  byte_fallback_ = true;
  steps_.push_back([](bool) { return std::make_unique<ByteFallbackStep>(); });
}
void Decoder::add_fuse() {
  fused_ = true;
  steps_.push_back([](bool) { return std::make_unique<FuseStep>(); });
}
void Decoder::add_strip(std::string character, size_t start, size_t stop) {
  // Before the tokens are one text, every token is stripped, the first like any other.
  steps_.push_back([character = std::move(character), start, stop, fused = fused_](bool continues) {
    return std::make_unique<StripStep>(character, start, stop, continues && fused);
  });
}
void Decoder::add_byte_level() {
  byte_level_ = fused_ = true;
  steps_.push_back([](bool) { return std::make_unique<ByteLevelStep>(); });
}

void Decoder::add_word_piece(std::string prefix, bool cleanup) {
  steps_.push_back([prefix = std::move(prefix), cleanup](bool continues) {
    return std::make_unique<WordPieceStep>(prefix, cleanup, continues);
  });
}

Result<Decoder> Decoder::from_json(const Json& json) {
  Decoder decoder;
  if (json.is_null()) {
    decoder.steps_.push_back([](bool continues) { return std::make_unique<SpacedStep>(continues); });
  } else {
    TRY_VOID(decoder.add_json(json, 0));
  }
  return decoder;
}

Result<void> Decoder::add_json(const Json& json, int depth) {
  TRY(std::string type, get_string(json, "type", ""));
  if (depth > 8 || steps_.size() > 64) return error(Code::unsupported, "the decoder has too many steps");
  if (type == "Sequence") {
    const Json* list = find(json, "decoders");
    if (list == nullptr || !list->is_array()) return error(Code::invalid, "a decoder sequence has no 'decoders'");
    for (const Json& item : list->get_array()) TRY_VOID(add_json(item, depth + 1));
  } else if (type == "ByteLevel") {
    add_byte_level();
  } else if (type == "Replace") {
    const Json* pattern_json = find(json, "pattern");
    if (pattern_json == nullptr) return error(Code::invalid, "a Replace decoder has no 'pattern'");
    TRY(Pattern pattern, Pattern::from_json(*pattern_json));
    TRY(std::string content, get_string(json, "content", ""));
    growth_ *= pattern.growth(content);
    if (growth_ > kMostGrowth) {
      return error(Code::invalid, "its decoder could make a text {:.0f} times as long; {:.0f} is the most", growth_,
                   kMostGrowth);
    }
    add_replace(std::move(pattern), std::move(content));
  } else if (type == "ByteFallback") {
    add_byte_fallback();
  } else if (type == "Fuse") {
    add_fuse();
  } else if (type == "Strip") {
    TRY(std::string character, get_string(json, "content", " "));
    TRY(int64_t start, get_int(json, "start", 0));
    TRY(int64_t stop, get_int(json, "stop", 0));
    if (character.empty() || start < 0 || stop < 0) return error(Code::invalid, "a Strip decoder makes no sense");
    add_strip(std::move(character), static_cast<size_t>(start), static_cast<size_t>(stop));
  } else if (type == "Metaspace") {
    TRY(std::string mark, get_string(json, "replacement", "\xE2\x96\x81"));
    TRY(std::string scheme, get_string(json, "prepend_scheme", "always"));
    TRY(bool prefix, get_bool(json, "add_prefix_space", true));
    if (mark.empty()) return error(Code::invalid, "a Metaspace decoder has no replacement");
    steps_.push_back([mark, strips = prefix && scheme != "never"](bool continues) {
      return std::make_unique<MetaspaceStep>(mark, strips, continues);
    });
  } else if (type == "WordPiece") {
    TRY(std::string prefix, get_string(json, "prefix", "##"));
    TRY(bool cleanup, get_bool(json, "cleanup", true));
    add_word_piece(std::move(prefix), cleanup);
  } else if (type == "BPEDecoder") {
    TRY(std::string suffix, get_string(json, "suffix", "</w>"));
    steps_.push_back([suffix](bool) { return std::make_unique<SuffixStep>(suffix); });
  } else {
    return error(Code::unsupported, "the decoder '{}' is not supported", type);
  }
  return {};
}

}  // namespace millrace
