// Steps that are recorded once and then repeated: those that continue each of a few sequences by one token.
#include <iterator>
#include <utility>

#include "backend/cuda/ops.h"

namespace millrace::cuda {

bool CudaOps::each_sees_itself_last(const Step& step) {
  for (int32_t i = 0; i < step.rows; ++i)
    if (step.visible[i] != step.positions[i] + 1) return false;
  return true;
}

bool CudaOps::plain(const Step& step) const {
  return parts_.graphs && step.types == nullptr && step.rows == step.sequences && step.wanted == step.rows &&
         step.rows <= kMostSequences && each_sees_itself_last(step);
}

Tensor CudaOps::repeat(const Step& step) {
  if (!plain(step)) return {};
  plan_attention(step);
  auto found = recorded_.find(kind_of(step));
  to_record_ = found == recorded_.end();
  if (to_record_) return {};
  recording_ = false;
  best_queued_ = true;
  expect_best(step.wanted);
  const cudaError_t status = cudaGraphLaunch(found->second.graph, parts_.stream);
  if (failure_ == cudaSuccess) failure_ = status;
  return found->second.result;
}

// Adapters that were loaded when others were recorded may be gone, or lie elsewhere.
void CudaOps::keep_recorded(const StepKind& kind, const Recorded& one) {
  for (auto each = recorded_.begin(); each != recorded_.end();) {
    const bool old = kind.adapters != 0 && each->first.adapters != 0 && each->first.adapters != kind.adapters;
    if (old) cudaGraphExecDestroy(each->second.graph);
    each = old ? recorded_.erase(each) : std::next(each);
  }
  recorded_[kind] = one;
}

void CudaOps::queue_best(Tensor rows) {
  if (rows.rows == 0 || rows.rows > kMostSequences) return;
  expect_best(rows.rows);
  argmax(parts_.stream, view(rows), {reinterpret_cast<uint64_t*>(parts_.fixed), argmax_finished_}, best_device_,
         host_best());
}

void CudaOps::queue_step(Tensor rows, bool best) {
  flush();
  if (recording_) {
    queue_best(rows);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    cudaError_t status = cudaStreamEndCapture(parts_.stream, &graph);
    if (status == cudaSuccess) status = cudaGraphInstantiate(&exec, graph, 0);
    if (graph != nullptr) cudaGraphDestroy(graph);
    if (status == cudaSuccess) {
      keep_recorded(kind_of(*step_), {exec, rows});
      status = cudaGraphLaunch(exec, parts_.stream);
    }
    note(status);
    recording_ = false;
  } else if (best && !best_queued_) {
    queue_best(rows);
  }
}

}  // namespace millrace::cuda
