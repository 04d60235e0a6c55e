// Tokenizer: text to tokens and back, the same ids as Hugging Face's tokenizers give for a tokenizer.json and as
// llama.cpp gives for a GGUF file. Opened once per model, then copied freely (copies share everything) and used from
// any thread.
//
// Text may be any bytes: parts that are not UTF-8 count as U+FFFD, as in Rust and Python. Encoding takes time linear in
// the text and memory of a few megabytes per thread at work; it ends in an error where the files make a text grow
// beyond all use or search it at a cost beyond any use (text/growth.h, text/regex.h), which no text does to an honest
// file.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/token.h"
#include "tensor/checkpoint.h"
#include "tensor/metadata.h"

namespace millrace {

struct EncodeOptions {
  bool parse_special = false;  // control tokens in the text (<|im_end|>) count as such; else they are plain text
  bool add_special = false;    // begin and end tokens as the model wants them
};

struct DecodeOptions {
  bool skip_special = false;  // leave control tokens out
  bool continues = false;     // the tokens follow others, so a space in front of the first one stays
};

// -1 where the model has none.
struct SpecialTokens {
  Token begin = -1;           // of a text
  Token end = -1;             // of a text
  Token end_of_turn = -1;     // in a chat
  Token end_of_message = -1;  // a tool is called next
  Token pad = -1, unknown = -1, separator = -1, mask = -1;
  Token fill_prefix = -1, fill_suffix = -1, fill_middle = -1;  // filling in the middle
  bool add_begin = false, add_end = false;                     // what add_special adds
  // A text of its own had better start with `begin`: add_special adds it, or the files name it and have no rule about
  // adding it, one way or the other.
  bool wants_begin = false;
};

// Two texts as the model wants to see them together.
struct EncodedPair {
  std::vector<Token> tokens;
  size_t second = 0;  // tokens from here on have type 1; 0: all have type 0
};

struct GgufVocab;

class Tokenizer {
 public:
  // tokenizer.json of a Hugging Face directory, or the metadata of a GGUF file.
  static Result<Tokenizer> open(const Checkpoint& checkpoint);
  // The configurations may be null: tokenizer_config.json names the special tokens, generation_config.json the ends.
  static Result<Tokenizer> from_json(std::string_view tokenizer_json, const Json& tokenizer_config = nullptr,
                                     const Json& generation_config = nullptr);
  static Result<Tokenizer> from_metadata(const Metadata& metadata);
  static Result<Tokenizer> from_words(std::string_view vocab_txt, const Json& tokenizer_config = nullptr);  // BERT's

  Result<std::vector<Token>> encode(std::string_view text, EncodeOptions options = {}) const;
  // Two texts with the model's special tokens; control tokens in them are plain text. An error if the files do not say
  // how. `most` 0: no limit; else the longer text is cut at its end until that many tokens are left.
  Result<EncodedPair> encode_pair(std::string_view first, std::string_view second, size_t most = 0) const;
  // Ids that are no token add nothing. The text is valid UTF-8.
  std::string decode(std::span<const Token> tokens, DecodeOptions options = {}) const;

  Token size() const;                                             // ids are below this; some may be no token
  std::string_view token_text(Token id) const;                    // as the model's file has it; empty if there is none
  std::string token_bytes(Token id) const;                        // what it adds to a text, inside of it
  std::optional<Token> token_to_id(std::string_view text) const;  // by token_text
  bool is_special(Token id) const;                                // a control token

  const SpecialTokens& special() const;
  std::span<const Token> ends() const;  // tokens that end an answer, sorted
  bool is_end(Token id) const;

  // What a GGUF file says about this tokenizer; an error where it cannot say it. A model with more rows in its
  // embedding than the tokenizer has tokens gets the rest as unused ones.
  Result<GgufVocab> gguf_vocab(Token model_tokens = 0) const;

 private:
  friend class Detokenizer;
  friend struct TokenizerParts;
  explicit Tokenizer(std::shared_ptr<const struct TokenizerParts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const struct TokenizerParts> parts_;
};

}  // namespace millrace
