// Which experts rows go to, where their pairs lie, and what becomes of pairs (backend/routing.h). A warp chooses for a
// row; a warp finds the pairs of an expert.
#include "backend/cuda/rows.cuh"

namespace millrace::cuda {
namespace {

constexpr int kNobody = INT32_MAX;

__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

// A warp's work for one row. Numbers are in shared memory; all lanes give the same answers.
struct Choosing {
  const Router& router;
  float *logits, *scores, *choice;  // [experts]
  int32_t* expert;                  // [chosen]
  float* weight;                    // [chosen]
  int lane;

  template <class F>
  __device__ void each(int count, F&& body) const {
    for (int i = lane; i < count; i += 32) body(i);
    __syncwarp();
  }
  // The place of the largest that is more than -infinity, the lowest of equals.
  __device__ int best_of(const float* values, int count) const {
    float most = -INFINITY;
    int at = kNobody;
    for (int i = lane; i < count; i += 32)
      if (values[i] > most) most = values[i], at = i;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(~0u, most, step);
      const int there = __shfl_xor_sync(~0u, at, step);
      if (other > most || (other == most && there < at)) most = other, at = there;
    }
    return at;
  }
  // The best that is left; where nothing is (numbers that are none), the lowest expert not yet taken.
  __device__ int pick(const float* values, int taken) const {
    const int best = best_of(values, router.experts);
    if (best != kNobody) return best;
    for (int e = 0;; ++e) {
      bool there = false;
      for (int i = 0; i < taken; ++i) there |= expert[i] == e;
      if (!there) return e;
    }
  }
  __device__ void softmax(float* values, int count) const {
    const int best = best_of(values, count);
    const float most = best == kNobody ? values[0] : values[best];
    __syncwarp();
    float sum = 0;
    each(count, [&](int i) { sum += values[i] = expf(values[i] - most); });
    sum = warp_sum(sum);
    each(count, [&](int i) { values[i] /= sum; });
  }
  __device__ float group_score(int group, int size) const {
    float most = -INFINITY, second = -INFINITY;
    for (int i = group * size; i < (group + 1) * size; ++i) {
      const float value = choice[i];
      if (value > most)
        second = most, most = value;
      else if (value > second)
        second = value;
    }
    return router.group_score == GroupScore::most || size == 1 ? most : most + second;
  }
  // Experts outside the best groups can no longer be chosen. Scores of groups lie where logits were.
  __device__ void keep_groups() const {
    const int size = router.experts / router.groups;
    each(router.groups, [&](int group) { logits[group] = group_score(group, size); });
    each(router.groups, [&](int group) {
      int better = 0;
      for (int other = 0; other < router.groups; ++other)
        better += logits[other] > logits[group] || (logits[other] == logits[group] && other < group);
      if (better < router.chosen_groups) return;
      for (int i = group * size; i < (group + 1) * size; ++i) choice[i] = -INFINITY;
    });
  }
  __device__ void take(int i, int e, float share) const {
    __syncwarp();
    if (lane == 0) expert[i] = e, weight[i] = share;
    __syncwarp();
  }
  __device__ void mix_sparsely() const {
    each(router.experts, [&](int e) { choice[e] = logits[e]; });
    for (int i = 0; i < router.chosen; ++i) {
      const int best = pick(choice, i);
      const float most = choice[best];
      float sum = 0;
      each(router.experts, [&](int e) {
        const float apart = (most - logits[e]) / fmaxf(fabsf(logits[e]), most);
        if (choice[e] != -INFINITY && !(apart > 2 * router.jitter)) sum += expf(choice[e] - most);
      });
      take(i, best, 1 / warp_sum(sum));
      if (lane == 0) choice[best] = -INFINITY;
      __syncwarp();
    }
  }
  __device__ void score() const {
    each(router.experts, [&](int e) {
      const float x = logits[e];
      scores[e] = x;
      if (router.score == RouterScore::sigmoid) scores[e] = 1 / (1 + expf(-x));
      if (router.score == RouterScore::sqrt_softplus) scores[e] = sqrtf(x > 20 ? x : log1pf(expf(x)));
    });
    if (router.score == RouterScore::softmax) softmax(scores, router.experts);
  }
  __device__ void choose() const {
    score();
    const float* by = router.choice_bias != nullptr || router.groups > 1 ? scores : logits;
    each(router.experts,
         [&](int e) { choice[e] = router.choice_bias != nullptr ? by[e] + router.choice_bias[e] : by[e]; });
    if (router.groups > 1) keep_groups();
    for (int i = 0; i < router.chosen; ++i) {
      const int best = pick(choice, i);
      take(i, best, scores[best]);
      if (lane == 0) choice[best] = -INFINITY;
      __syncwarp();
    }
  }
  // Experts ascending, weights with them; few enough to insert one by one.
  __device__ void sort() const {
    if (lane == 0) {
      for (int i = 1; i < router.chosen; ++i) {
        const int32_t e = expert[i];
        const float w = weight[i];
        int at = i;
        for (; at > 0 && expert[at - 1] > e; --at) expert[at] = expert[at - 1], weight[at] = weight[at - 1];
        expert[at] = e, weight[at] = w;
      }
    }
    __syncwarp();
  }
  __device__ void weigh() const {
    if (router.score == RouterScore::softmax_chosen) softmax(weight, router.chosen);
    float divisor = 1;
    if (router.normalise) {
      float sum = 0;
      for (int i = 0; i < router.chosen; ++i) sum += weight[i];
      divisor = sum + router.epsilon;
    }
    __syncwarp();
    each(router.chosen, [&](int i) {
      weight[i] = weight[i] / divisor * router.scale;
      if (router.expert_scale != nullptr) weight[i] *= router.expert_scale[expert[i]];
    });
  }
};

__global__ void route_kernel(Router router, View logits, Routing routing) {
  extern __shared__ float room[];
  wait_for_previous();
  const int64_t row = blockIdx.x;
  Choosing all = {router,
                  room,
                  room + router.experts,
                  room + 2 * router.experts,
                  reinterpret_cast<int32_t*>(room + 3 * router.experts),
                  room + 3 * router.experts + router.chosen,
                  static_cast<int>(threadIdx.x)};
  all.each(router.experts, [&](int e) { all.logits[e] = read(logits, row, e); });
  if (router.score == RouterScore::sparse_mixer)
    all.mix_sparsely();
  else
    all.choose();
  all.sort();
  all.weigh();
  all.each(router.chosen, [&](int i) {
    routing.expert[row * routing.chosen + i] = all.expert[i];
    routing.weight[row * routing.chosen + i] = all.weight[i];
  });
}

constexpr int kSortWarps = 4;

// A counting sort that keeps the order of rows: every expert counts the pairs of those before it.
__global__ void sort_kernel(Routing routing) {
  wait_for_previous();
  const int expert = static_cast<int>(blockIdx.x * kSortWarps + threadIdx.x / 32), lane = threadIdx.x % 32;
  const int pairs = static_cast<int>(routing.rows) * routing.chosen;
  if (expert > routing.experts) return;
  int before = 0;
#pragma unroll 4
  for (int i = lane; i < pairs; i += 32) before += routing.expert[i] < expert;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) before += __shfl_xor_sync(~0u, before, step);
  if (lane == 0) routing.first[expert] = before;
  if (expert == routing.experts) return;
#pragma unroll 4
  for (int first = 0; first < pairs; first += 32) {
    const int i = first + lane;
    const bool mine = i < pairs && routing.expert[i] == expert;
    const unsigned all = __ballot_sync(~0u, mine);
    if (mine) {
      const int place = before + __popc(all & ((1u << lane) - 1));
      routing.place[i] = place;
      routing.row[place] = i / routing.chosen;
    }
    before += __popc(all);
  }
}

// Numbers one by one: grid (columns / 256, rows).
template <class F>
__global__ void pairs_kernel(int64_t rows, int32_t cols, F body) {
  wait_for_previous();
  const int col = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (col >= cols) return;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) body(row, col);
}
template <class F>
void each(cudaStream_t stream, int64_t rows, int32_t cols, F body) {
  if (rows == 0 || cols == 0) return;
  const dim3 grid(count((cols + 255) / 256), count(rows < 32768 ? rows : 32768));
  launch(stream, pairs_kernel<F>, grid, 256, 0, rows, cols, body);
}

struct Limited {
  GluLimit limit;
  View gate, up, out;
  __device__ void operator()(int64_t row, int col) const {
    write(out, row, col, limited(limit, read(gate, row, col), read(up, row, col)));
  }
};
struct Spread {
  Routing routing;
  View in, out;
  __device__ void operator()(int64_t pair, int col) const {
    write(out, routing.place[pair], col, routing.weight[pair] * read(in, pair / routing.chosen, col));
  }
};
struct Combine {
  Routing routing;
  bool weighted;
  View in, out;
  __device__ void operator()(int64_t row, int col) const {
    float sum = 0;
    for (int64_t i = row * routing.chosen; i < (row + 1) * routing.chosen; ++i)
      sum += (weighted ? routing.weight[i] : 1) * read(in, routing.place[i], col);
    write(out, row, col, sum);
  }
};
struct AddGated {
  View in, gate, out;
  __device__ void operator()(int64_t row, int col) const {
    const float share = 1 / (1 + expf(-read(gate, row, 0)));
    write(out, row, col, read(out, row, col) + share * read(in, row, col));
  }
};

struct ScaleByPosition {
  PositionScale scale;
  const int32_t* positions;
  View inout;
  __device__ void operator()(int64_t row, int col) const {
    const int steps = (positions[row] + scale.offset) / scale.every;
    write(inout, row, col, read(inout, row, col) * (1 + scale.factor * log1pf(static_cast<float>(steps))));
  }
};

}  // namespace

void route(cudaStream_t stream, const Router& router, View logits, const Routing& routing) {
  if (routing.rows == 0) return;
  const size_t shared = (3 * static_cast<size_t>(router.experts) + 2 * static_cast<size_t>(router.chosen)) * 4;
  launch(stream, route_kernel, count(routing.rows), 32, shared, router, logits, routing);
  launch(stream, sort_kernel, count((routing.experts + kSortWarps) / kSortWarps), 32 * kSortWarps, 0, routing);
}

void glu_limited(cudaStream_t stream, const GluLimit& limit, View gate, View up, View out) {
  each(stream, out.rows, out.cols, Limited{limit, gate, up, out});
}
void spread(cudaStream_t stream, const Routing& routing, View in, View out) {
  each(stream, routing.pairs(), in.cols, Spread{routing, in, out});
}
void combine(cudaStream_t stream, const Routing& routing, bool weighted, View in, View out) {
  each(stream, routing.rows, out.cols, Combine{routing, weighted, in, out});
}
void add_gated(cudaStream_t stream, View in, View gate, View out) {
  each(stream, in.rows, in.cols, AddGated{in, gate, out});
}

void scale_by_position(cudaStream_t stream, const PositionScale& scale, const int32_t* positions, View inout) {
  each(stream, inout.rows, inout.cols, ScaleByPosition{scale, positions, inout});
}

cudaError_t load_routing() { return load_kernels(); }

}  // namespace millrace::cuda
