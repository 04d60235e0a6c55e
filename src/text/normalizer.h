// Normalizer: what is done to a text before it is cut into pieces, as the steps of a tokenizer.json say. Immutable once
// built; any thread, each with its own RegexScratch. Texts are valid UTF-8 before and after.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/charsmap.h"
#include "text/growth.h"
#include "text/pattern.h"
#include "text/unicode.h"

namespace millrace {

class Normalizer {
 public:
  static Result<Normalizer> from_json(const Json& json);

  void add_form(NormalForm form) { add(form, form == NormalForm::nfc ? "nfc" : "form"); }
  void add_prepend(std::string text) { add(Prepend{std::move(text)}, "prepend"); }
  void add_replace(Pattern pattern, std::string content) {
    add(Replace{std::move(pattern), std::move(content)}, "replace");
  }

  void add_bert() { add(Bert{}, "bert"); }  // all of its steps

  bool empty() const { return steps_.empty(); }
  // A text comes out at most so many times as long, apart from what normal forms write out. Bounded for what files say;
  // what one text may come to is bounded in run().
  double growth() const;
  // The bytes of the text come out as the characters that stand for them.
  bool byte_level() const { return byte_level_; }
  // The names of the steps, for recognising well-known ones: "prepend|replace".
  const std::string& signature() const { return signature_; }
  // Clears *at_start if the first characters were taken away, so that what is left does not begin the input. An error
  // where the text grows by more than the budget has left.
  Result<void> run(std::string& text, bool* at_start, RegexScratch& scratch, GrowthBudget& budget) const;

 private:
  struct Prepend {
    std::string text;
  };
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  struct Strip {
    bool left, right;
  };
  struct Lowercase {};
  struct StripAccents {};
  struct ByteLevel {};
  struct Bert {  // BERT's own: which of its steps are wanted
    bool clean = true, chinese = true, accents = true, lower = true;
  };
  struct Nmt {};
  using Step =
      std::variant<NormalForm, Prepend, Replace, Strip, Lowercase, StripAccents, ByteLevel, Nmt, Charsmap, Bert>;
  struct Runner;

  void add(Step step, std::string_view name) {
    signature_ += (signature_.empty() ? "" : "|") + std::string(name);
    steps_.push_back(std::move(step));
  }
  Result<void> add_json(const Json& json, int depth);

  std::vector<Step> steps_;
  bool byte_level_ = false;
  std::string signature_;
};

}  // namespace millrace
