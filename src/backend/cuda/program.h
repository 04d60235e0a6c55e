// A step of a few tokens as a list of tasks that one kernel goes through (program.cu), so that weights never stop
// coming: those of the next tasks are on their way while a task waits for the one before.
#pragma once

#include "backend/cuda/kernels.h"

namespace millrace::cuda {

inline constexpr int32_t kProgramRows = 4;  // at most

// Attention of sequences that have one row each. If `finish` is set, q, k and v are as the products left them: heads
// are turned and keys and values kept on the way.
struct Attending {
  DeviceStep step;
  Attention attention;
  View q, k, v, out;
  KvView kv;
  bool finish = false, neighbours = false;
  int32_t half = 0;                     // pairs of a head that turn
  const float* table = nullptr;         // of angles
  const int32_t* first_item = nullptr;  // as in AttendPlan
  float* partials = nullptr;
  unsigned* finished = nullptr;
};

struct Task {
  enum class Kind : uint8_t { products, attend };
  Kind kind = Kind::products;
  bool normed = false;
  Products work;
  Norm norm;          // if normed
  int32_t units = 0;  // panels, of gated products pairs of them
  int32_t streams = 0, stage_chunks = 0, stage_bytes = 0;
  Attending attend;
};

bool program_takes(const Products& work);
Task task_of(const Products& work);
Task task_of(const Attending& attend);
// Whether a program of these tasks cannot go on with this one: it has weights of one format, and bfloat16 beside them.
bool program_mixes(const Task* tasks, int32_t count, const Task& next);
// `tasks` lie on the device at `place` by the time the kernel runs. `arrived`: zero before and after.
void run_program(cudaStream_t stream, const Task* tasks, int32_t count, const Task* place, unsigned* arrived);

}  // namespace millrace::cuda
