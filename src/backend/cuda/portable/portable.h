// Kernels for every GPU from compute capability 8.0 on: matrix instructions of single warps, copies of sixteen bytes,
// no more shared memory than the smallest of these GPUs gives a thread block (99 KB). They compute what the kernels of
// kernels.h by the same names compute, to the bit, from the same weights and caches; family.h says who gets which.
// Every function only queues work on the stream.
#pragma once

#include "backend/cuda/kernels.h"

namespace millrace::cuda::portable {

// Has a file's kernels ready: at its first start on a GPU the driver compiles them, which takes seconds.
cudaError_t load_few_rows();
cudaError_t load_many_rows();
cudaError_t load_attend_long();
cudaError_t load_attend_short();
cudaError_t load_int8_rows();

// ---- few_rows.cu
inline constexpr int32_t kFewRows = 16;
bool few_rows_fit(int32_t rows, int32_t cols, bool norm);  // norms have a kernel of their own here
void few_rows(cudaStream_t stream, const Products& work);

// ---- many_rows.cu: any number of rows; weights and `in` are bfloat16, or both float16.
cudaError_t many_rows(cudaStream_t stream, const Products& work);

// ---- int8_rows.cu: any number of rows.
cudaError_t int8_rows(cudaStream_t stream, const Products& work);

// ---- attend_long.cu, attend_short.cu: heads of 64 and 128 in a 16-bit cache.
cudaError_t attend(cudaStream_t stream, const DeviceStep& step, const Attention& attention, View q, const KvView& kv,
                   View out, const AttendPlan& plan);
// Its part for sequences of one row.
void attend_short(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q,
                  const KvView& kv, const View& out, const AttendPlan& plan);

}  // namespace millrace::cuda::portable
