// Shortlisting rows of logits alone: whether what the device proposes leads the sampler to the token it finds in the
// whole row, how often it asks for the whole row, and how long the kernels take.
//   nvcc -std=c++20 -O3 --fmad=false -gencode=arch=compute_90a,code=sm_90a -Isrc
//   -lib src/backend/cuda/{shortlist,rows}.cu -o kernels.a
//   g++ -std=c++20 -O3 -ffp-contract=off -Isrc -I/usr/local/cuda/include lab/cuda_shortlist.cpp
//   src/backend/{shortlist,ops}.cpp src/base/{rng,result}.cpp
//   src/engine/{sampler,sampler_shortlist,sampler_penalty,sampler_scan,sampler_race,sampling}.cpp kernels.a -lfmt
//   -L/usr/local/cuda/lib64 -lcudart_static -ldl -lrt -lpthread -o shortlist && ./shortlist
// Two compilers, because the CUDA compiler does not get along with fmt, which the sampler's headers include.

#include <cmath>
#include <cstdio>
#include <vector>

#include "backend/cuda/kernels.h"
#include "backend/shortlist.h"
#include "cuda_lab.cuh"
#include "engine/sampler.h"

using namespace millrace;
using namespace millrace::cuda;

namespace {

cudaStream_t stream;
uint64_t state = 88172645463325252ull;
double chance() {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return static_cast<double>(state >> 11) * 0x1p-53;
}
float gaussian() {
  return static_cast<float>(std::sqrt(-2 * std::log(1 - chance())) * std::cos(6.283185307 * chance()));
}

struct Shape {
  const char* name;
  void (*fill)(std::vector<float>&);
};
const Shape kShapes[] = {
    {"flat (sigma 1)",
     [](std::vector<float>& row) {
       for (float& x : row) x = gaussian();
     }},
    {"like a model (sigma 2.5, some far above)",
     [](std::vector<float>& row) {
       for (float& x : row) x = 2.5f * gaussian();
       float top = 22;
       for (int i = 0; i < 60; ++i, top -= 0.4f * static_cast<float>(chance()))
         row[static_cast<size_t>(chance() * static_cast<double>(row.size()))] = top;
     }},
    {"ties (steps of a quarter)",
     [](std::vector<float>& row) {
       for (float& x : row) x = std::round(12 * gaussian()) / 4;
     }},
    {"one dominates",
     [](std::vector<float>& row) {
       for (float& x : row) x = gaussian();
       row[row.size() / 3] = 60;
     }},
    {"most impossible",
     [](std::vector<float>& row) {
       for (float& x : row) x = chance() < 0.999 ? -INFINITY : 3 * gaussian();
       row[7] = 1;
     }},
    {"all equal",
     [](std::vector<float>& row) {
       for (float& x : row) x = 1.5f;
     }},
};

struct Setting {
  const char* name;
  Sampling sampling;
};
const Setting kSettings[] = {
    {"temperature 1", {.temperature = 1}},
    {"temperature 0.7", {.temperature = 0.7}},
    {"temperature 100", {.temperature = 100}},
    {"temperature 1e-4", {.temperature = 1e-4}},
    {"top-k 40", {.temperature = 0.8, .top_k = 40}},
    {"top-k 500", {.temperature = 1, .top_k = 500}},
    {"top-k 40, top-p 0.95, min-p 0.05", {.temperature = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.05}},
    {"top-p 0.9", {.temperature = 1, .top_p = 0.9}},
    {"top-p 0.95, min-p 0.05", {.temperature = 1, .top_p = 0.95, .min_p = 0.05}},
    {"min-p 0.1", {.temperature = 1.5, .min_p = 0.1}},
    {"repetition 1.1, top-k 40", {.temperature = 0.8, .top_k = 40, .repetition = 1.1}},
    {"greedy, presence 0.5", {.temperature = 0, .presence = 0.5}},
};

// Rows on the device, and all that shortlisting needs.
struct Bench {
  int32_t rows, cols;
  int64_t stride;
  float* logits;
  int32_t* best;
  ShortlistAsk* asks;
  ShortlistBatch batch;
  ShortlistRoom room;
  ArgmaxRoom argmax_room;

  Bench(int32_t count, int32_t vocab) : rows(count), cols(vocab), stride((int64_t{vocab} + 15) / 16 * 16) {
    void *parts, *listed;
    const auto n = static_cast<size_t>(rows);
    MUST(cudaMalloc(&logits, n * static_cast<size_t>(stride) * 4));
    MUST(cudaMalloc(&best, n * 4));
    MUST(cudaMalloc(&asks, n * sizeof(ShortlistAsk)));
    MUST(cudaMalloc(&parts, static_cast<size_t>(shortlist_parts_bytes(rows))));
    MUST(cudaMalloc(&listed, n * kShortlistListed * sizeof(ShortlistToken)));
    MUST(cudaMallocHost(&batch.asks, n * sizeof(ShortlistAsk)));
    MUST(cudaMallocHost(&batch.found, n * sizeof(Shortlisted)));
    MUST(cudaMallocHost(&batch.tokens, n * kShortlistTokens * sizeof(ShortlistToken)));
    argmax_room.keys = static_cast<uint64_t*>(parts);
    MUST(cudaMalloc(&argmax_room.finished, n * 4));
    MUST(cudaMemset(argmax_room.finished, 0, n * 4));
    room = {asks, best, parts, static_cast<ShortlistToken*>(listed), batch.found, batch.tokens};
  }
  View view(int32_t count) const { return {logits, stride * 4, count, cols, Form::f32}; }
  void set(int32_t row, const std::vector<float>& numbers) {
    MUST(cudaMemcpy(logits + row * stride, numbers.data(), numbers.size() * 4, cudaMemcpyHostToDevice));
  }
  void bring_asks(int32_t count) {
    MUST(cudaMemcpyAsync(asks, batch.asks, static_cast<size_t>(count) * sizeof(ShortlistAsk), cudaMemcpyHostToDevice,
                         stream));
  }
  void shortlist(int32_t count) {
    bring_asks(count);
    shortlist_rows(stream, view(count), room);
    for (int32_t i = 0; i < count; ++i) batch.found[i].tokens = batch.tokens + int64_t{i} * kShortlistTokens;
  }
};

int check(int32_t vocab) {
  constexpr int32_t kRows = 48;
  Bench bench(kRows, vocab);
  SamplerScratch scratch(vocab);
  std::vector<std::vector<float>> rows(kRows, std::vector<float>(static_cast<size_t>(vocab)));
  int wrong = 0;
  double worst_sum = 0;
  for (const Shape& shape : kShapes) {
    std::printf("%d tokens, %s:", vocab, shape.name);
    for (int32_t i = 0; i < kRows; ++i) {
      shape.fill(rows[static_cast<size_t>(i)]);
      bench.set(i, rows[static_cast<size_t>(i)]);
    }
    argmax(stream, bench.view(kRows), bench.argmax_room, bench.best, bench.best);
    int whole = 0, tried = 0;
    for (const Setting& setting : kSettings) {
      std::vector<Token> context;
      for (int i = 0; i < 70; ++i) context.push_back(static_cast<Token>(chance() * vocab));
      std::vector<Sampler> samplers;
      for (int32_t i = 0; i < kRows; ++i) {
        Sampling sampling = setting.sampling;
        sampling.seed = state;
        samplers.push_back(Sampler::create(sampling, vocab, static_cast<uint32_t>(i)).value());
        bench.batch.asks[i] = samplers.back().shortlist_ask(vocab, context.size(), {});
      }
      bench.shortlist(kRows);
      MUST(cudaStreamSynchronize(stream));
      int unsettled = 0;
      for (int32_t i = 0; i < kRows; ++i) {
        const std::vector<float>& row = rows[static_cast<size_t>(i)];
        Sampler& sampler = samplers[static_cast<size_t>(i)];
        const Shortlisted& found = bench.batch.found[i];
        const auto token = sampler.sample_shortlist(bench.batch.asks[i], found, context, scratch);
        const Token expected = sampler.sample(row, context, scratch).value();
        if (sampler.sampling().top_k == 0 && sampler.sampling().top_p < 1 && found.fits) {
          const double sum = sum_weights(row, found.largest, 1).weight;
          worst_sum = std::max(worst_sum, std::abs(sum - found.sum) / sum);
        }
        ++tried;
        if (!token) ++unsettled;
        if (token && *token != expected && ++wrong <= 10)
          std::printf("\n  WRONG: %s, row %d: %d, not %d", setting.name, i, *token, expected);
      }
      whole += unsettled;
      if (unsettled > 0) std::printf(" [%s: %d of %d whole]", setting.name, unsettled, kRows);
    }
    std::printf(" %d of %d rows wanted whole\n", whole, tried);
  }
  std::printf("%d tokens: %d wrong, sums off by %.2g at most (allowed: %.2g)\n", vocab, wrong, worst_sum,
              kShortlistSumError);
  return wrong + (worst_sum > kShortlistSumError ? 1 : 0);
}

void time(int32_t vocab) {
  constexpr int32_t kMost = 256;
  Bench bench(kMost, vocab);
  std::vector<float> row(static_cast<size_t>(vocab));
  for (int32_t i = 0; i < kMost; ++i) {
    kShapes[1].fill(row);
    bench.set(i, row);
  }
  for (int32_t rows : {1, 64, 256}) {
    const double bytes = 4.0 * rows * vocab;
    const double first =
        time_graph(stream, [&] { argmax(stream, bench.view(rows), bench.argmax_room, bench.best, bench.best); });
    std::printf("%3d rows x %d: argmax %7.1f us (%.0f GB/s)\n", rows, vocab, first, bytes / first * 1e-3);
    for (const Setting& setting : kSettings) {
      for (int32_t i = 0; i < rows; ++i) {
        Sampling sampling = setting.sampling;
        sampling.seed = static_cast<uint64_t>(i);
        bench.batch.asks[i] = Sampler::create(sampling, vocab).value().shortlist_ask(vocab, 100, {});
      }
      bench.bring_asks(rows);
      const double us = time_graph(stream, [&] { shortlist_rows(stream, bench.view(rows), bench.room); });
      std::printf("  %-34s %7.1f us (%.0f GB/s)\n", setting.name, us, bytes / us * 1e-3);
    }
  }
}

}  // namespace

int main() {
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  int wrong = 0;
  for (int32_t vocab : {128256, 32000, 151936, 262144, 50257, 1000}) wrong += check(vocab);
  time(128256);
  std::printf(wrong == 0 ? "all as the host chooses\n" : "%d WRONG\n", wrong);
  return wrong == 0 ? 0 : 1;
}
