#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

namespace millrace {
namespace {

constexpr size_t kLongestPattern = 64 << 10;
constexpr size_t kStackStart = 32 << 10, kStackLimit = 16 << 20;
constexpr uint32_t kHeapLimitKib = 256 << 10;
constexpr int kMostFailures = 3;

uint32_t step_limit(size_t text_bytes) {
  // Enough for a few passes over a long text, little enough that a pattern that backtracks without end stops in a
  // second.
  return static_cast<uint32_t>(std::min<size_t>(10'000'000 + 16 * text_bytes, 1'000'000'000));
}

}  // namespace

struct RegexScratch::Parts {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = nullptr;

  Parts() { pcre2_set_heap_limit(context, kHeapLimitKib); }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;
  ~Parts() {
    pcre2_match_data_free(match);
    pcre2_match_context_free(context);
    if (stack != nullptr) pcre2_jit_stack_free(stack);
  }
};

RegexScratch::RegexScratch() : parts_(std::make_unique<Parts>()) {}
RegexScratch::~RegexScratch() = default;

Result<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kLongestPattern) {
    return error(Code::unsupported, "a regular expression of {} bytes is longer than the limit of {}", pattern.size(),
                 kLongestPattern);
  }
  TRY(std::string translated, translate_regex(pattern));
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context, 100);
  int failure = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &failure, &at, context);
  pcre2_compile_context_free(context);
  if (code == nullptr) {
    unsigned char message[160];
    pcre2_get_error_message(failure, message, sizeof message);
    return error(Code::unsupported, "the regular expression '{}' cannot be used: {}", pattern,
                 reinterpret_cast<const char*>(message));
  }
  // Fails where memory may not be written and run; then matching interprets the pattern.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  Regex regex;
  regex.code_ = std::shared_ptr<const void>(
      code, [](const void* it) { pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(it))); });
  return regex;
}

Span Regex::find(std::string_view text, size_t from, RegexScratch& scratch) const {
  if (scratch.failures_ >= kMostFailures) return {};
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  RegexScratch::Parts& parts = *scratch.parts_;
  pcre2_set_match_limit(parts.context, step_limit(text.size()));
  auto match = [&](uint32_t options) {
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, PCRE2_NO_UTF_CHECK | options,
                       parts.match, parts.context);
  };
  int outcome = match(0);
  if (outcome == PCRE2_ERROR_JIT_STACKLIMIT && parts.stack == nullptr) {
    parts.stack = pcre2_jit_stack_create(kStackStart, kStackLimit, nullptr);
    pcre2_jit_stack_assign(parts.context, nullptr, parts.stack);
    outcome = match(0);
  }
  if (outcome == PCRE2_ERROR_JIT_STACKLIMIT) outcome = match(PCRE2_NO_JIT);
  if (outcome < 0) {
    if (outcome != PCRE2_ERROR_NOMATCH) ++scratch.failures_;
    return {};
  }
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(parts.match);
  // With \K inside a lookahead a match may end before it starts; that is no use to anyone.
  if (offsets[1] < offsets[0] || offsets[0] < from) return {};
  return {offsets[0], offsets[1]};
}

}  // namespace millrace
