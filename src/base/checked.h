// Checked: the one type for sizes, counts and offsets that come from outside. Arithmetic on it never wraps: once
// something overflowed, the value stays bad and get() says so. Compare with what is there before allocating anything.
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>
#include <optional>

namespace millrace {

class Checked {
 public:
  constexpr Checked(std::unsigned_integral auto value) : value_(value) {}
  constexpr Checked(std::signed_integral auto value)
      : value_(value < 0 ? 0 : static_cast<uint64_t>(value)), ok_(value >= 0) {}

  constexpr bool ok() const { return ok_; }
  constexpr std::optional<uint64_t> get() const { return ok_ ? std::optional<uint64_t>(value_) : std::nullopt; }
  // True if the value is good and no larger than the limit.
  constexpr bool within(uint64_t limit) const { return ok_ && value_ <= limit; }

  friend constexpr Checked operator+(Checked a, Checked b) {
    return Checked(a, b, [](uint64_t x, uint64_t y, uint64_t* out) { return __builtin_add_overflow(x, y, out); });
  }
  friend constexpr Checked operator-(Checked a, Checked b) {
    return Checked(a, b, [](uint64_t x, uint64_t y, uint64_t* out) { return __builtin_sub_overflow(x, y, out); });
  }
  friend constexpr Checked operator*(Checked a, Checked b) {
    return Checked(a, b, [](uint64_t x, uint64_t y, uint64_t* out) { return __builtin_mul_overflow(x, y, out); });
  }
  // Division rounds down; by zero is bad.
  friend constexpr Checked operator/(Checked a, Checked b) {
    return Checked(a, b, [](uint64_t x, uint64_t y, uint64_t* out) { return y == 0 || (*out = x / y, false); });
  }
  // The next multiple of a power of two.
  constexpr Checked aligned(uint64_t alignment) const {
    Checked up = *this + Checked(alignment - 1);
    up.value_ &= ~(alignment - 1);
    return up;
  }

 private:
  template <class F>
  constexpr Checked(Checked a, Checked b, F overflows)
      : ok_(a.ok_ && b.ok_ && !overflows(a.value_, b.value_, &value_)) {}

  uint64_t value_ = 0;
  bool ok_ = true;
};

}  // namespace millrace
