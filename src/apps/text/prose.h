// English-like text for benchmarks where none is given, made of the words a tokenizer itself knows: common ones as
// often as a language has them, and one in forty put together from two, so that a cache of words helps about as much as
// it would on a book. The same text for the same tokenizer on every machine. Any thread.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace millrace::apps {

std::string generated_prose(const Tokenizer& tokenizer, size_t bytes);

}  // namespace millrace::apps
