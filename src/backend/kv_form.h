// How keys and values are kept in the cache, and what each way means: its bytes, how a head's numbers are rounded, and
// what is read back. Pure; any thread. `reference` and the kernels of every backend keep to it.
//
// f32, f16, bf16: numbers as they are, token after token. i8 and f8_e4m3: a byte for a number, and one float32 factor
// for a token's head; a head's part of a page has the bytes of all its tokens, then their factors. q4_0: groups of 32
// with a float16 factor each, as in GGUF files, token after token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace millrace {

struct KvForm {
  DType k = DType::f16, v = DType::f16;
  // Keys of four bits are turned before they are rounded (kv_turn), and queries with them: no number stands out then.
  bool turned = true;

  constexpr KvForm() = default;
  constexpr KvForm(DType both) : k(both), v(both) {}  // most often keys and values are kept alike
  constexpr KvForm(DType keys, DType values, bool turned_) : k(keys), v(values), turned(turned_) {}

  // Numbers as they are, and both the same.
  constexpr bool plain() const { return k == v && (k == DType::f32 || k == DType::f16 || k == DType::bf16); }
  constexpr bool turns_keys() const { return k == DType::q4_0 && turned; }
  std::string name() const;  // "F16", "Q8", "Q4 keys and Q8 values"
  friend constexpr bool operator==(const KvForm&, const KvForm&) = default;
};

// The names a cache may be asked for by.
inline constexpr std::string_view kKvNames = "f32, f16, bf16, q8, fp8, q4 or q4-plain";
// "q8" and the like; those of other programs (q8_0, int8, fp8_e4m3, q4_0) mean ours. Nothing: no such form.
std::optional<KvForm> kv_form_from_name(std::string_view name);
bool can_keep(DType type);

// Bytes of a token's head without and with its factor. `dim` is a multiple of format(type).group.
int64_t kv_code_bytes(DType type, int64_t dim);
int64_t kv_bytes(DType type, int64_t dim);

// Where a token of a head's part of a page has its codes, and its factor (of i8 and f8_e4m3; others have none).
inline int64_t kv_codes_at(DType type, int64_t dim, int64_t within) { return within * kv_code_bytes(type, dim); }
inline int64_t kv_factor_at(DType type, int64_t dim, int64_t page_tokens, int64_t within) {
  return page_tokens * kv_code_bytes(type, dim) + within * static_cast<int64_t>(sizeof(float));
}

// Rounds one head of one token: i8 and f8_e4m3 to the factor that takes the largest number to the end of the range,
// q4_0 to one that takes the largest of 32 to -8. A head with a number that is not finite is read back as NaN.
void kv_write(DType type, const float* in, int64_t dim, std::byte* codes, std::byte* factor);
void kv_read(DType type, const std::byte* codes, const std::byte* factor, int64_t dim, float* out);

// A Hadamard transform of a head, in parts of the largest power of two that divides it: lengths and products stay, and
// what was in one number is in all of them.
void kv_turn(float* inout, int64_t dim);

}  // namespace millrace
