// CudaOps as one rank of several (backend/reach.h): its parts have the bits of the whole, and rows are copied to where
// ranks exchange them.
#include "backend/cuda/ops.h"
#include "backend/cuda/parts.h"

namespace millrace::cuda {

void CudaOps::settle(Tensor tensor, bool written) {
  flush();
  Buffer* room = room_of(tensor.data);
  if (room == nullptr) return;
  if (written && (room->form != Form::f32 || room->gone)) note(cudaErrorInvalidValue);
  room->form = Form::f32;
  room->gone = false;
}

void CudaOps::copy(std::byte* to, int64_t to_apart, const std::byte* from, int64_t from_apart, int64_t bytes,
                   int64_t rows) {
  note(cudaMemcpy2DAsync(to, static_cast<size_t>(to_apart), from, static_cast<size_t>(from_apart),
                         static_cast<size_t>(bytes), static_cast<size_t>(rows), cudaMemcpyDefault, parts_.stream));
}

void CudaOps::wait() { note(cudaStreamSynchronize(parts_.stream)); }

void CudaOps::all_outputs(const std::byte* weights, int64_t rows) { all_outputs_[weights] = rows; }

void CudaOps::begin_part(Tensor whole, int32_t heads_per_key) {
  part_ = RankShare{.whole = whole, .heads_per_key = heads_per_key};
}

void CudaOps::end_part() {
  flush();
  const RankShare part = *part_;
  part_.reset();
  if (part.rounds_to != Form::f32) round_rows(parts_.stream, part.rounds_to, view(part.written));
}

int64_t CudaOps::outputs_of(const Products::Product& part) const {
  const auto found = all_outputs_.find(part.weights);
  return found != all_outputs_.end() ? found->second : part.rows;
}

}  // namespace millrace::cuda
