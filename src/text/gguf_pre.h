// How GGUF files name the ways text is split (tokenizer.ggml.pre), and what each name stands for: the patterns of the
// model the name was given for. Tables that never change; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/pre_tokenizer.h"

namespace millrace {

struct GgufPre {
  PreTokenizer pre;
  bool ignore_merges = false;  // a piece that is a token is that token
  bool add_begin = false;      // where the file does not say
  bool no_begin = false;       // there is no begin token unless the file names one
  bool byte_level = true;      // else characters, spaces written as U+2581, and tokens <0x00> for bytes
};

// An unknown name is an error that lists what to do.
Result<GgufPre> gguf_pre(std::string_view name);

// The name for a pre-tokenizer with this signature, for a model that ignores merges or not; nothing if no name stands
// for it.
std::optional<std::string> gguf_pre_name(const std::string& signature, bool ignore_merges);

}  // namespace millrace
