// Whether this program is built with a sanitizer that makes it many times as slow: tests that repeat one thing do it
// less often then. g++ names sanitizers by macros, clang as features.
#pragma once

namespace millrace::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace millrace::test
