// English-like text for benchmarks where none is given: common words as often as English has them, and a long tail of
// rare ones, so that a cache of words helps as much as it would on a book and no more. The same text on every machine.
#pragma once

#include <string>

namespace millrace::apps {

std::string generated_prose(size_t bytes);

}  // namespace millrace::apps
