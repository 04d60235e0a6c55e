// What the programs of the lab that run on a GPU share: ending at the first error, and the time of a recorded piece of
// work.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#define MUST(call)                                                                  \
  do {                                                                              \
    auto status_ = (call);                                                          \
    if (static_cast<int>(status_) != 0) {                                           \
      std::printf("%s:%d: %s gives %d\n", __FILE__, __LINE__, #call, (int)status_); \
      std::exit(1);                                                                 \
    }                                                                               \
  } while (0)

// Microseconds: the median of several rounds, after three that do not count.
inline double time_graph(cudaStream_t stream, const std::function<void()>& body, int rounds = 20) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  body();
  MUST(cudaStreamEndCapture(stream, &graph));
  MUST(cudaGraphInstantiate(&exec, graph, 0));
  std::vector<float> times;
  cudaEvent_t begin, end;
  MUST(cudaEventCreate(&begin));
  MUST(cudaEventCreate(&end));
  for (int i = 0; i < rounds + 3; ++i) {
    MUST(cudaEventRecord(begin, stream));
    MUST(cudaGraphLaunch(exec, stream));
    MUST(cudaEventRecord(end, stream));
    MUST(cudaStreamSynchronize(stream));
    float milliseconds;
    MUST(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i >= 3) times.push_back(milliseconds);
  }
  MUST(cudaEventDestroy(begin));
  MUST(cudaEventDestroy(end));
  MUST(cudaGraphExecDestroy(exec));
  MUST(cudaGraphDestroy(graph));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2] * 1e3;
}
