// Lab: what binds a loop of matrix products on a Neoverse V1, and in which order the instructions of the tile of
// group32_tile.h run fastest. Loops are put together at run time from single instructions and timed on data in the
// first cache. The first part prints cycles of loops with different numbers of each kind; the second tries orders (a
// move is taken if it is faster, or now and then if it is not) and prints the best it has met.
//   g++ -O2 -std=c++20 -march=armv8.4-a lab/arm_tile_order.cpp -o /tmp/lab && /tmp/lab [seconds of search] [seed]
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace {

struct Instruction {
  uint32_t word;
  uint32_t defines, uses;  // bit i: vector register i
  std::string text;
};

uint32_t bit(int i) { return uint32_t{1} << i; }
uint32_t field(int value, int at) { return static_cast<uint32_t>(value) << at; }
std::string name(const char* what, int d, int a, int b) {
  return std::string(what) + " " + std::to_string(d) + ", " + std::to_string(a) + ", " + std::to_string(b);
}

Instruction three(const char* what, uint32_t code, int d, int a, int b, bool adds) {
  return {code | field(b, 16) | field(a, 5) | field(d, 0), bit(d), bit(a) | bit(b) | (adds ? bit(d) : 0),
          name(what, d, a, b)};
}
Instruction smmla(int d, int a, int b) { return three("smmla", 0x4e80a400, d, a, b, true); }
Instruction fmul(int d, int a, int b) { return three("fmul", 0x6e20dc00, d, a, b, false); }
Instruction fadd(int d, int a, int b) { return three("fadd", 0x4e20d400, d, a, b, false); }
Instruction fmla(int d, int a, int b) { return three("fmla", 0x4e20cc00, d, a, b, true); }
Instruction scvtf(int d, int a) {
  return {0x4e21d800 | field(a, 5) | field(d, 0), bit(d), bit(a), name("scvtf", d, a, 0)};
}
Instruction clear(int d) { return {0x4f000400 | field(d, 0), bit(d), 0, name("clear", d, 0, 0)}; }
Instruction load(int d, int base, int offset) {
  return {0x3dc00000 | field(offset / 16, 10) | field(base, 5) | field(d, 0), bit(d), 0, name("load", d, base, offset)};
}
Instruction load_two(int d, int e, int base, int offset) {
  return {0xad400000 | field(offset / 16, 15) | field(e, 10) | field(base, 5) | field(d, 0), bit(d) | bit(e), 0,
          name("load two", d, e, base) + ", " + std::to_string(offset)};
}

constexpr int kGroups = 48;
constexpr double kClock = 2.6e9;
alignas(4096) char rows[160 * (kGroups + 8)], values[256 * (kGroups + 8)], factors[64 * (kGroups + 8)];
uint32_t* code = nullptr;

void call() {
  asm volatile("mov x0, %0\nmov x1, %1\nmov x2, %2\nmov x3, %3\nblr %4\n" ::"r"(rows), "r"(values), "r"(factors),
               "r"(int64_t{kGroups}), "r"(code)
               : "x0", "x1", "x2", "x3", "x30", "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8",
                 "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23",
                 "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");
}

double now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Cycles of one round of the loop: the instructions, then pointers on to the next group.
double cycles(const std::vector<Instruction>& loop) {
  constexpr int kRepeat = 60;
  size_t n = 0;
  for (const Instruction& i : loop) code[n++] = i.word;
  for (uint32_t word : {0x91000000u | 160 << 10, 0x91000000u | 256 << 10 | 1 << 5 | 1,
                        0x91000000u | 64 << 10 | 2 << 5 | 2, 0xf1000000u | 1 << 10 | 3 << 5 | 3})
    code[n++] = word;
  code[n] = 0x54000000u | (static_cast<uint32_t>(-static_cast<int32_t>(n)) & 0x7ffff) << 5 | 0xc;  // b.gt to the start
  code[++n] = 0xd65f03c0u;                                                                         // ret
  __builtin___clear_cache(reinterpret_cast<char*>(code), reinterpret_cast<char*>(code + n + 1));
  call();
  double best = 1e9;
  for (int t = 0; t < 6; ++t) {
    double begin = now();
    for (int r = 0; r < kRepeat; ++r) call();
    best = std::min(best, now() - begin);
  }
  return best * kClock / (kRepeat * kGroups);
}

// Four times: eight matrix products, `others` of another kind, `loads` loads and `clears` clears.
void count(const char* text, int others, Instruction (*other)(int, int, int), int loads, int clears) {
  std::vector<Instruction> loop;
  for (int step = 0; step < 4; ++step) {
    for (int i = 0; i < loads; ++i) loop.push_back(load(16 + (step * loads + i) % 16, 0, 16 * (i % 8)));
    for (int i = 0; i < 8; ++i) loop.push_back(smmla(i, 16 + (step * loads + 1) % 16, 16 + (step * loads) % 16));
    for (int i = 0; i < others; ++i) {
      int d = 8 + (step * others + i) % 8;
      loop.push_back(other(d, d, d));
    }
    for (int i = 0; i < clears; ++i) loop.push_back(clear(step * clears % 8 + i));
  }
  int written = 4 * (8 + others + loads + clears);
  std::printf("32 smmla, %2d %s, %2d loads, %d clears: %3d results, %5.2f cycles\n", 4 * others, text, 4 * loads,
              4 * clears, written, cycles(loop));
}

// The tile: sums 0-7, integers 8-15, those of the group before as float 16-17, factors of its rows 18-19, of its
// outputs 20-21, weights 22-27, rows 28-31.
std::vector<Instruction> tile() {
  std::vector<Instruction> loop;
  int pairs = 0, w = 0;
  for (int k = 0; k < 4; ++k) {
    int r = 28 + 2 * (k % 2);
    loop.push_back(load_two(r, r + 1, 0, 32 + 32 * k));
    if (k == 0) loop.push_back(load_two(18, 19, 0, 0));
    for (int p = 0; p < 4; ++p) {
      if (p % 2 == 0) {
        w = 22 + pairs++ % 3 * 2;
        loop.push_back(load_two(w, w + 1, 1, 64 * k + 16 * p));
      }
      for (int h = 0; h < 2; ++h) {
        if (k == 0) loop.push_back(scvtf(16 + h, 8 + 4 * h + p)), loop.push_back(clear(8 + 4 * h + p));
        loop.push_back(smmla(8 + 4 * h + p, r + h, w + p % 2));
      }
      if (k != 0) continue;
      loop.push_back(load(20, 2, 16 * p));
      loop.push_back(fmul(21, 20, 18));
      loop.push_back(fmul(20, 20, 19));
      loop.push_back(fmla(p, 16, 21));
      loop.push_back(fmla(p + 4, 17, 20));
    }
  }
  return loop;
}

bool may_swap(const Instruction& a, const Instruction& b) {
  return ((a.defines & (b.defines | b.uses)) | (a.uses & b.defines)) == 0;
}

void search(double seconds, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Instruction> at = tile(), best = at;
  double cost = cycles(at), least = cost, begin = now();
  std::printf("\ntile as written: %.2f cycles\n", cost);
  while (now() - begin < seconds) {
    double patience = 0.02 * (1 - (now() - begin) / seconds) + 1e-4;
    std::vector<Instruction> next = at;
    for (auto moves = 1 + random() % 3; moves > 0; --moves) {
      int from = static_cast<int>(random() % next.size());
      int to = std::clamp<int>(from + static_cast<int>(random() % 41) - 20, 0, static_cast<int>(next.size()) - 1);
      int step = from < to ? 1 : -1;
      for (; from != to && may_swap(next[static_cast<size_t>(from)], next[static_cast<size_t>(from + step)]);
           from += step)
        std::swap(next[static_cast<size_t>(from)], next[static_cast<size_t>(from + step)]);
    }
    double now_costs = cycles(next);
    if (now_costs >= cost && std::exp((cost - now_costs) / patience) * 4294967296.0 < static_cast<double>(random()))
      continue;
    at = next;
    cost = now_costs;
    if (cost < least && cycles(at) < least) least = cost, best = at;
  }
  std::printf("best: %.2f cycles\n", cycles(best));
  for (const Instruction& i : best) std::printf("  %s\n", i.text.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  for (char& c : rows) c = static_cast<char>(std::rand() & 63);
  for (char& c : values) c = static_cast<char>(std::rand() & 63);
  code = static_cast<uint32_t*>(
      mmap(nullptr, 65536, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (code == MAP_FAILED) return std::perror("mmap"), 1;
  count("others", 0, fadd, 6, 2);
  count("fadd", 2, fadd, 6, 2);
  count("fadd", 4, fadd, 6, 2);
  count("fadd", 6, fadd, 6, 0);
  count("fadd", 6, fadd, 6, 2);
  count("fadd", 6, fadd, 7, 2);
  count("fmul", 6, fmul, 6, 0);
  count("fmul", 4, fmul, 4, 0);
  count("fadd", 4, fadd, 4, 0);
  search(argc > 1 ? std::atof(argv[1]) : 20, argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 1);
}
