// Any text as a grammar of this kind: it compiles within its limits or is refused, and what compiles gives a mask.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "grammar/small.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  if (size > 4096) return 0;
  static const auto vocabulary = testing_grammar::vocabulary({"{\"", "\": ", "\", \"", "ab"});
  const std::string text(reinterpret_cast<const char*>(data), size);
  auto grammar = Grammar::compile({.kind = GrammarKind::lark, .text = text}, vocabulary);
  if (!grammar.ok()) return 0;
  auto mask = (*grammar)->allowed((*grammar)->start());
  if (mask.ok() && (*mask)->count() == 0) std::abort();
  return 0;
}
