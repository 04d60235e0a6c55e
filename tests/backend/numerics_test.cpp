// What kernels compute cannot change unnoticed: hashes of products, norms, activations and attention of every
// instruction set are kept here beside the version of the arithmetic that is part of fingerprints (backend/numerics.h).
//
// Only what our own code decides to the bit takes part, so that no compiler, no level of optimisation and no C library
// shows: inputs are bits of mt19937, which the standard fixes (of its distributions it fixes none), and what the plain
// kernels ask of the C library (exp and tanh in attention and activations) is left out there, as are the sines and the
// routers of all.
#include "backend/numerics.h"

#include <bit>
#include <map>

#include "backend/rig.h"

namespace millrace::testing {
namespace {

// The version that the hashes below are of.
constexpr int kHashedVersion = 4;

struct KeptHash {
  std::string_view name;  // the instruction set, and what was computed
  uint64_t hash;
};
constexpr KeptHash kKeptHashes[] = {
    {"scalar: norms", 0xcc71a0ac00e9eac5},
    {"scalar: plain products, fast", 0x4ec421ccd1e4045e},
    {"scalar: plain products, float32", 0x4ec421ccd1e4045e},
    {"scalar: products in groups of 256, fast", 0xb09ae2411f8bc56e},
    {"scalar: products in groups of 256, float32", 0xb09ae2411f8bc56e},
    {"scalar: products in groups of 32, fast", 0xf3bf968901ced5c8},
    {"scalar: products in groups of 32, float32", 0xf3bf968901ced5c8},
    {"scalar: products of tables and others, fast", 0xcf65be18f88e7364},
    {"scalar: products of tables and others, float32", 0xcf65be18f88e7364},
    {"avx2: activations", 0x246b6b1fb48fe6df},
    {"avx2: attention to codes", 0x44762ebeacc7ee72},
    {"avx2: attention, fast", 0x6a11bd290c1271a6},
    {"avx2: attention, float32", 0x6a11bd290c1271a6},
    {"avx2: norms", 0xec6efd153bfacda8},
    {"avx2: plain products, fast", 0x4609cddae3474933},
    {"avx2: plain products, float32", 0x4609cddae3474933},
    {"avx2: products in groups of 256, fast", 0xe2afde4deb3bbdeb},
    {"avx2: products in groups of 256, float32", 0xff5664cbc361a452},
    {"avx2: products in groups of 32, fast", 0x022f73e057d0eee6},
    {"avx2: products in groups of 32, float32", 0xf4c19291249b04e2},
    {"avx2: products of tables and others, fast", 0xbd31376a56c8abfc},
    {"avx2: products of tables and others, float32", 0x93aa760bde76ab23},
    {"avx512: activations", 0x246b6b1fb48fe6df},
    {"avx512: attention to codes", 0x44762ebeacc7ee72},
    {"avx512: attention, fast", 0x6a11bd290c1271a6},
    {"avx512: attention, float32", 0x6a11bd290c1271a6},
    {"avx512: norms", 0xec6efd153bfacda8},
    {"avx512: plain products, fast", 0x4609cddae3474933},
    {"avx512: plain products, float32", 0x4609cddae3474933},
    {"avx512: products in groups of 256, fast", 0xe2afde4deb3bbdeb},
    {"avx512: products in groups of 256, float32", 0xff5664cbc361a452},
    {"avx512: products in groups of 32, fast", 0x022f73e057d0eee6},
    {"avx512: products in groups of 32, float32", 0xf4c19291249b04e2},
    {"avx512: products of tables and others, fast", 0xb0194df7b8a5fe16},
    {"avx512: products of tables and others, float32", 0x93aa760bde76ab23},
    {"amx_bf16: activations", 0x246b6b1fb48fe6df},
    {"amx_bf16: attention to codes", 0x44762ebeacc7ee72},
    {"amx_bf16: attention, fast", 0x9c7788eb61bcf2e3},
    {"amx_bf16: attention, float32", 0x6a11bd290c1271a6},
    {"amx_bf16: norms", 0xec6efd153bfacda8},
    {"amx_bf16: plain products, fast", 0x7d448b99dfc7b319},
    {"amx_bf16: plain products, float32", 0x4609cddae3474933},
    {"amx_bf16: products in groups of 256, fast", 0x95dc72c7bdb32cf3},
    {"amx_bf16: products in groups of 256, float32", 0xff5664cbc361a452},
    {"amx_bf16: products in groups of 32, fast", 0x73e4741bb46a280b},
    {"amx_bf16: products in groups of 32, float32", 0xf4c19291249b04e2},
    {"amx_bf16: products of tables and others, fast", 0xdbddaacfb71f10a4},
    {"amx_bf16: products of tables and others, float32", 0x93aa760bde76ab23},
    {"amx: activations", 0x246b6b1fb48fe6df},
    {"amx: attention to codes", 0x44762ebeacc7ee72},
    {"amx: attention, fast", 0x9c7788eb61bcf2e3},
    {"amx: attention, float32", 0x6a11bd290c1271a6},
    {"amx: norms", 0xec6efd153bfacda8},
    {"amx: plain products, fast", 0x7d448b99dfc7b319},
    {"amx: plain products, float32", 0x4609cddae3474933},
    {"amx: products in groups of 256, fast", 0xe2afde4deb3bbdeb},
    {"amx: products in groups of 256, float32", 0xff5664cbc361a452},
    {"amx: products in groups of 32, fast", 0x022f73e057d0eee6},
    {"amx: products in groups of 32, float32", 0xf4c19291249b04e2},
    {"amx: products of tables and others, fast", 0xb0194df7b8a5fe16},
    {"amx: products of tables and others, float32", 0x93aa760bde76ab23},
    {"neon: activations", 0x246b6b1fb48fe6df},
    {"neon: attention to codes", 0x321fa17cc8b6427e},
    {"neon: attention, fast", 0xf40627dfae095a54},
    {"neon: attention, float32", 0x9fa5675fab1c7c39},
    {"neon: norms", 0x6f6950ebb3a6ed01},
    {"neon: plain products, fast", 0x2b7be79ebb28ce7b},
    {"neon: plain products, float32", 0x4609cddae3474933},
    {"neon: products in groups of 256, fast", 0x32c720b3c3994118},
    {"neon: products in groups of 256, float32", 0xff5664cbc361a452},
    {"neon: products in groups of 32, fast", 0xc76a2c08391746d7},
    {"neon: products in groups of 32, float32", 0xf4c19291249b04e2},
    {"neon: products of tables and others, fast", 0xf9045aa22e073036},
    {"neon: products of tables and others, float32", 0x93aa760bde76ab23},
    {"i8mm: activations", 0x246b6b1fb48fe6df},
    {"i8mm: attention to codes", 0x321fa17cc8b6427e},
    {"i8mm: attention, fast", 0x0f9ca97094da146a},
    {"i8mm: attention, float32", 0x9fa5675fab1c7c39},
    {"i8mm: norms", 0x6f6950ebb3a6ed01},
    {"i8mm: plain products, fast", 0xe457c9c1b1e2524c},
    {"i8mm: plain products, float32", 0x4609cddae3474933},
    {"i8mm: products in groups of 256, fast", 0x32c720b3c3994118},
    {"i8mm: products in groups of 256, float32", 0xff5664cbc361a452},
    {"i8mm: products in groups of 32, fast", 0xc76a2c08391746d7},
    {"i8mm: products in groups of 32, float32", 0xf4c19291249b04e2},
    {"i8mm: products of tables and others, fast", 0xf9045aa22e073036},
    {"i8mm: products of tables and others, float32", 0x93aa760bde76ab23},
};

// In [-1, 1), all 24 bits of it used.
float bits_number(std::mt19937& bits) { return static_cast<float>(static_cast<int32_t>(bits()) >> 8) * 0x1p-23f; }

Rows bits_rows(int64_t rows, int64_t cols, std::mt19937& bits) {
  Rows out(rows, cols);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < cols; ++i) out.row(r)[i] = bits_number(bits);
  return out;
}

// A matrix of a format, without what makes weights small: that may change, and no answer does. Groups are drawn until
// their numbers are of use.
std::vector<std::byte> bits_matrix(DType type, int64_t values, std::mt19937& bits) {
  const Format& f = format(type);
  std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(type, values)));
  if (f.group == 1) {
    std::vector<float> numbers(static_cast<size_t>(values));
    for (float& number : numbers) number = bits_number(bits);
    f.from_float(numbers.data(), bytes.data(), values);
    return bytes;
  }
  std::vector<float> numbers(static_cast<size_t>(f.group));
  const auto useful = [](float number) { return std::abs(number) < 64; };
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(f.group_bytes)) {
    do {
      for (int i = 0; i < f.group_bytes; ++i) bytes[at + static_cast<size_t>(i)] = static_cast<std::byte>(bits() >> 24);
      f.to_float(bytes.data() + at, numbers.data(), f.group);
    } while (!std::all_of(numbers.begin(), numbers.end(), useful));
  }
  return bytes;
}

using Hashes = std::map<std::string, uint64_t>;

void mix(uint64_t& hash, const Rows& rows) {
  for (int64_t r = 0; r < rows.count; ++r) {
    for (int64_t i = 0; i < rows.width; ++i) {
      hash = (hash ^ std::bit_cast<uint32_t>(rows.row(r)[i])) * 0x100000001B3;
      hash ^= hash >> 29;
    }
  }
}

std::string family_of(DType type) {
  if (format(type).group == 1) return "plain products";
  if (type >= DType::q4_0 && type <= DType::q8_0) return "products in groups of 32";
  if (type >= DType::q2_k && type <= DType::q6_k) return "products in groups of 256";
  return "products of tables and others";
}

// As many rows as some kernels take together, and as few as others do.
void hash_products(Machine& machine, const std::string& mode, Hashes& out) {
  constexpr int64_t kOutputs = 70, kInputs = 768, kRows = 21;
  for (int i = 0; i < kDTypes; ++i) {
    const auto type = static_cast<DType>(i);
    const bool number = type <= DType::f8_e5m2;
    if (!format(type).readable() || (format(type).group == 1 && !number)) continue;
    std::mt19937 bits(static_cast<uint32_t>(1000 + i));
    const auto matrix = bits_matrix(type, kOutputs * kInputs, bits);
    Rows in = bits_rows(kRows, kInputs, bits), all(kRows, kOutputs), one(1, kOutputs);
    const Weight weight = machine.upload(type, kOutputs, kInputs, matrix);
    machine.ops->linear(weight, in.tensor(), all.tensor());
    machine.ops->linear(weight, in.slice(3, 1), one.tensor());
    uint64_t& hash = out[family_of(type) + mode];
    mix(hash, all);
    mix(hash, one);
  }
}

void hash_norms(Machine& machine, Hashes& out) {
  constexpr int64_t kWidth = 203;
  std::mt19937 bits(1);
  const std::vector<float> weight = [&] {
    Rows rows = bits_rows(2, kWidth, bits);
    return std::vector<float>(rows.row(0), rows.row(0) + kWidth);
  }();
  Norm norm{.kind = NormKind::rms, .epsilon = 1e-5f, .width = kWidth};
  norm.weight = machine.backend->upload_vector(weight).value();
  uint64_t& hash = out["norms"];
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    norm.kind = kind;
    if (kind == NormKind::layer) norm.bias = norm.weight;
    Rows in = bits_rows(3, kWidth, bits), normed(3, kWidth);
    machine.ops->norm(norm, 1, in.tensor(), normed.tensor());
    mix(hash, normed);
  }
}

void hash_activations(Machine& machine, Hashes& out) {
  std::mt19937 bits(2);
  uint64_t& hash = out["activations"];
  for (const Activation activation : {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::sigmoid}) {
    Rows gate = bits_rows(2, 203, bits), up = bits_rows(2, 203, bits), both(2, 203);
    machine.ops->glu(activation, gate.tensor(), up.tensor(), both.tensor());
    mix(hash, both);
  }
}

// The last rows of a sequence of more than one run of chunks.
void hash_attention(Machine& machine, const KvForm& form, uint64_t& hash) {
  constexpr int32_t kHeads = 6, kTokens = 700, kLast = 3, kPageTokens = 16, kHead = 64;
  std::mt19937 bits(3);
  const CacheShape shape{2, kHead, kHead, kPageTokens, form};
  Batch early({{0, kTokens - kLast}}, kPageTokens, 1), whole({{0, kTokens}}, kPageTokens, 1);
  Batch late({{kTokens - kLast, kLast}}, kPageTokens, 1);
  early.tables = late.tables = whole.tables;
  Cache cache(shape, whole.page_count);
  Rows k = bits_rows(kTokens, 2 * kHead, bits), v = bits_rows(kTokens, 2 * kHead, bits);
  Rows q = bits_rows(kLast, kHeads * kHead, bits), out(kLast, kHeads * kHead);
  Attention attention;
  attention.heads = kHeads;
  attention.scale = 0.5f;
  Step first = early.step(), second = late.step();
  machine.ops->begin(first);
  machine.ops->kv_store(k.slice(0, kTokens - kLast), v.slice(0, kTokens - kLast), cache.view);
  machine.ops->begin(second);
  machine.ops->kv_store(k.slice(kTokens - kLast, kLast), v.slice(kTokens - kLast, kLast), cache.view);
  machine.ops->attend(attention, q.tensor(), cache.view, out.tensor());
  mix(hash, out);
}

Hashes hashes_of(std::string_view isa) {
  Hashes out;
  const bool own = isa != "scalar";  // exponentials and the like
  for (const Activations mode : {Activations::float32, Activations::fast}) {
    const bool fast = mode == Activations::fast;
    const std::string named = fast ? ", fast" : ", float32";
    Machine machine = cpu(isa, 2, mode);
    hash_products(machine, named, out);
    if (!own) continue;
    for (const DType type : {DType::f32, DType::f16, DType::bf16})
      hash_attention(machine, type, out["attention" + named]);
    if (!fast) continue;
    for (const DType type : {DType::i8, DType::q4_0}) hash_attention(machine, type, out["attention to codes"]);
    hash_activations(machine, out);
  }
  Machine machine = cpu(isa);
  hash_norms(machine, out);
  return out;
}

class Numerics : public ::testing::TestWithParam<const char*> {};

// A new format of weights changes its family's hash and nobody's sums: that hash is stored, and the version stays.
TEST_P(Numerics, AreThoseOfTheirVersion) {
  const std::string isa = GetParam();
  std::vector<std::string_view> here = cpu_isas();
  if (std::find(here.begin(), here.end(), isa) == here.end())
    GTEST_SKIP() << "this machine has no " << isa << ": its sums were not hashed";
  std::string fresh, changed;
  bool kept = false;
  for (const auto& [what, hash] : hashes_of(isa)) {
    const std::string name = isa + ": " + what;
    fresh += fmt::format("    {{\"{}\", 0x{:016x}}},\n", name, hash);
    const auto found = std::ranges::find(kKeptHashes, name, &KeptHash::name);
    kept |= found != std::end(kKeptHashes);
    if (found == std::end(kKeptHashes) || found->hash != hash) changed += "  " + name + "\n";
  }
  if (!kept)
    GTEST_SKIP() << "no sums of " << isa << " are kept; these are version " << kNumericsVersion << ":\n" << fresh;
  EXPECT_TRUE(changed.empty()) << "sums changed: raise kNumericsVersion (backend/numerics.h) and store these\n"
                               << changed << fresh;
}

#if defined(__aarch64__)
constexpr const char* kHashedIsas[] = {"scalar", "neon", "i8mm"};
#elif defined(__x86_64__)
constexpr const char* kHashedIsas[] = {"scalar", "avx2", "avx512", "amx_bf16", "amx"};
#else
constexpr const char* kHashedIsas[] = {"scalar"};
#endif
INSTANTIATE_TEST_SUITE_P(Sums, Numerics, ::testing::ValuesIn(kHashedIsas),
                         [](const auto& isa) { return std::string(isa.param); });

// The name of an arithmetic, which has the instruction set and how inputs are rounded, and not the threads.
TEST(NumericsName, IsOfWhatDecidesBits) {
  const auto name = [](std::string_view isa, Activations mode, int threads) {
    return cpu(isa, threads, mode).backend->numerics();
  };
  std::vector<std::string> names = {reference().backend->numerics()};
  for (const std::string_view isa : cpu_isas()) {
    for (const Activations mode : {Activations::float32, Activations::fast}) {
      names.push_back(name(isa, mode, 1));
      EXPECT_EQ(name(isa, mode, 2), names.back());
    }
  }
  std::ranges::sort(names);
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
}

TEST(NumericsVersion, IsThatOfTheHashes) {
  EXPECT_EQ(kHashedVersion, kNumericsVersion)
      << "a new version: store the hashes of all instruction sets whose sums it changed, and its number beside them";
}

}  // namespace
}  // namespace millrace::testing
