// PreTokenizer: cuts a text into the pieces a model encodes one by one, as the steps of a tokenizer.json say. Immutable
// once built; any thread, each with its own RegexScratch.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/growth.h"
#include "text/pattern.h"

namespace millrace {

// Who takes the pieces, in order. A piece is valid during the call only.
class PieceSink {
 public:
  virtual ~PieceSink() = default;
  virtual void piece(std::string_view text) = 0;
};

class PreTokenizer {
 public:
  static Result<PreTokenizer> from_json(const Json& json);

  void add_split(Pattern pattern, Split how = Split::isolated, bool invert = false);
  // Pieces are byte strings from here on. With steps after it these see the characters that stand for the bytes.
  void add_byte_level(bool prefix_space, bool split_words);
  void add_bert();  // words, and every punctuation mark by itself
  // Spaces become `mark`; `when` says which pieces get one in front: 'a'lways, 'f'irst of the text, 'n'ever.
  void add_metaspace(std::string mark, char when, bool splits);

  // Pieces reach the sink as bytes, not as the characters that stand for them.
  bool byte_level() const { return byte_level_; }
  bool empty() const { return steps_.empty(); }
  // The text is valid UTF-8; `at_start` says that it begins where the whole input begins. An error where the marks in
  // front of pieces come to more than the budget has left; some pieces have been handed on then.
  Result<void> run(std::string_view text, bool at_start, RegexScratch& scratch, GrowthBudget& budget,
                   PieceSink& sink) const;

  // The steps in one line, for recognising well-known ones.
  std::string signature() const { return byte_level_ ? signature_ + "|byte_level" : signature_; }

 private:
  enum class Kind : uint8_t { split, prefix_space, byte_chars, metaspace };
  struct Step {
    Kind kind = Kind::split;
    Pattern pattern;
    Split how = Split::isolated;
    bool invert = false, splits = true;
    std::string mark;
    char when = 'n';
  };

  Result<void> add_json(const Json& json, int depth);
  struct Run {
    RegexScratch& scratch;
    GrowthBudget& budget;
    PieceSink& sink;
  };
  void run_step(size_t step, std::string_view text, bool at_start, const Run& run) const;
  void run_metaspace(size_t step, std::string_view text, bool at_start, const Run& run) const;
  void finish(std::string_view text, PieceSink& sink) const;
  void note(std::string_view what);

  std::vector<Step> steps_;
  bool byte_level_ = false;
  size_t byte_level_step_ = 0;    // steps_.size() when the byte level came: what comes later sees characters
  size_t last_split_ = SIZE_MAX;  // the split after which nothing changes the pieces any more
  std::string signature_;
};

}  // namespace millrace
