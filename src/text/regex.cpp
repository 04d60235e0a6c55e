#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <time.h>

#include <algorithm>

#include "text/unicode.h"

namespace millrace {
namespace {

constexpr size_t kLongestPattern = 64 << 10;
constexpr size_t kStackStart = 32 << 10, kStackLimit = 16 << 20;
constexpr uint32_t kHeapLimitKib = 256 << 10;
// Steps are PCRE2's: about one for every way it goes back to try another. Up to kFewSteps at one place of a text cost
// nothing; more are taken from the scratch, of which a text brings kStepsPerByte for every byte.
constexpr uint32_t kFewSteps = 500, kMostSteps = 32'000'000;
constexpr int64_t kStepsPerByte = 100;
// Not all of its work counts as steps (characters that are skipped in a row), so there is a limit in time as well, far
// beyond what a search within the steps takes. It is looked at after so many places.
constexpr double kSeconds = 10, kSecondsPerByte = 2e-6;
constexpr int kPlacesPerLook = 256;

// Time this thread has had a processor for: what others on the machine do does not count.
double seconds_of_thread() {
  timespec now = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

struct RegexScratch::Parts {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = nullptr;
  size_t place = 0;                      // where in the text the search under way is
  size_t only = std::string_view::npos;  // it ends where it leaves this place
  int places_to_look = kPlacesPerLook;
  double until = 0, seconds = kSeconds;  // of this thread; 0: not known yet
  bool late = false;

  Parts() {
    pcre2_set_heap_limit(context, kHeapLimitKib);
    pcre2_set_callout(context, on_place, this);
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;
  ~Parts() {
    pcre2_match_data_free(match);
    pcre2_match_context_free(context);
    if (stack != nullptr) pcre2_jit_stack_free(stack);
  }

  // Every pattern begins with a call of this.
  static int on_place(pcre2_callout_block* at, void* data) {
    auto& parts = *static_cast<Parts*>(data);
    if (parts.only != std::string_view::npos && at->start_match != parts.only) return PCRE2_ERROR_CALLOUT;
    parts.place = at->start_match;
    if (--parts.places_to_look > 0) return 0;
    parts.places_to_look = kPlacesPerLook;
    const double now = seconds_of_thread();
    if (parts.until == 0) parts.until = now + parts.seconds;
    parts.late = now > parts.until;
    return parts.late ? PCRE2_ERROR_CALLOUT : 0;
  }
};

RegexScratch::RegexScratch() : parts_(std::make_unique<Parts>()) {}
RegexScratch::~RegexScratch() = default;

void RegexScratch::reset(size_t text_bytes, int64_t steps) {
  text_bytes_ = text_bytes;
  most_ = left_ = steps + kStepsPerByte * static_cast<int64_t>(text_bytes);
  spent_ = Spent::nothing;
  parts_->until = 0;
  parts_->seconds = kSeconds + kSecondsPerByte * static_cast<double>(text_bytes);
  parts_->late = false;
}

Result<void> RegexScratch::status() const {
  switch (spent_) {
    case Spent::nothing:
      return {};
    case Spent::steps:
      return error(Code::invalid,
                   "the tokenizer's regular expressions take more steps on a text of {} bytes than are allowed: {} at "
                   "all places together, {} at one",
                   text_bytes_, most_, kMostSteps);
    case Spent::time:
      return error(Code::invalid, "the tokenizer's regular expressions take more than {:.1f} s on a text of {} bytes",
                   parts_->seconds, text_bytes_);
    case Spent::memory:
      return error(Code::invalid, "a regular expression of the tokenizer takes more than {} MiB on a text of {} bytes",
                   kHeapLimitKib >> 10, text_bytes_);
  }
  return {};
}

Result<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kLongestPattern) {
    return error(Code::unsupported, "a regular expression of {} bytes is longer than the limit of {}", pattern.size(),
                 kLongestPattern);
  }
  TRY(std::string translated, translate_regex(pattern));
  translated.insert(0, "(?C1)");
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

// Counts no more than `steps` at any one place.
int Regex::match(std::string_view text, size_t from, uint32_t steps, RegexScratch& scratch) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  RegexScratch::Parts& parts = *scratch.parts_;
  pcre2_set_match_limit(parts.context, steps);
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
  return outcome;
}

// A match that begins here and nowhere else, for as many steps as there are: how many it took nobody says, so it is
// tried with more and more, and all of them are paid for.
int Regex::match_at(std::string_view text, size_t from, RegexScratch& scratch) const {
  RegexScratch::Parts& parts = *scratch.parts_;
  int outcome = PCRE2_ERROR_MATCHLIMIT;
  parts.only = from;
  for (uint32_t steps = 2 * kFewSteps; outcome == PCRE2_ERROR_MATCHLIMIT; steps *= 2) {
    if (steps > scratch.left_ || steps > kMostSteps) break;
    scratch.left_ -= steps;
    outcome = match(text, from, steps, scratch);
  }
  parts.only = std::string_view::npos;
  return outcome == PCRE2_ERROR_CALLOUT && !parts.late ? PCRE2_ERROR_NOMATCH : outcome;
}

Span Regex::find(std::string_view text, size_t from, RegexScratch& scratch) const {
  if (scratch.spent_ != RegexScratch::Spent::nothing) return {};
  RegexScratch::Parts& parts = *scratch.parts_;
  int outcome = match(text, from, kFewSteps, scratch);
  while (outcome == PCRE2_ERROR_MATCHLIMIT) {
    size_t place = parts.place;
    outcome = match_at(text, place, scratch);
    if (outcome != PCRE2_ERROR_NOMATCH || place == text.size()) break;
    place += char_bytes(text[place]);
    outcome = match(text, place, kFewSteps, scratch);
  }
  if (outcome < 0) {
    using Spent = RegexScratch::Spent;
    if (outcome != PCRE2_ERROR_NOMATCH)
      scratch.spent_ = outcome == PCRE2_ERROR_MATCHLIMIT ? Spent::steps : parts.late ? Spent::time : Spent::memory;
    return {};
  }
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(parts.match);
  // With \K inside a lookahead a match may end before it starts; that is no use to anyone.
  if (offsets[1] < offsets[0] || offsets[0] < from) return {};
  return {offsets[0], offsets[1]};
}

}  // namespace millrace
