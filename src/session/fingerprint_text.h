// Digests of what turns text into tokens and back, and conversations into text: the part of the fingerprint
// (fingerprint.h) that the weights do not decide. They are of what the model's files say, not of what was understood,
// so two files that say the same in other ways have two. Taken while a model is loaded; pure but for reading its files.
#pragma once

#include "cache/identity.h"
#include "tensor/checkpoint.h"
#if MILLRACE_SESSION_TEXT
#include "text/chat.h"
#endif

namespace millrace {

struct TextDigests {
  Identity tokenizer;
  Identity chat;  // the templates, and the tokens they can name
};

Identity digest_of_tokenizer(const Checkpoint& checkpoint);
#if MILLRACE_SESSION_TEXT
Identity digest_of_chat(const ChatFacts& facts);
#endif

}  // namespace millrace
