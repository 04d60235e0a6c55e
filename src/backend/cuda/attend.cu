// Attention for heads of 64 and 128 numbers in a 16-bit cache: which kernel computes what (attend_long.cu,
// attend_short.cu), and how they are told where pages lie. What they compute is the same (attend.cuh).
#include "backend/cuda/attend.cuh"

#include <algorithm>

#include "backend/cuda/tensor_map.cuh"

namespace millrace::cuda {
namespace {

// Pages as rows of 64 numbers, positions of all heads, halves of a head, pages. How many pages there are is not known
// here, and nobody asks for one that is not there.
bool map_pages(CUtensorMap& map, const KvView& kv, int64_t offset, int run, int halves) {
  const cuuint64_t sizes[4] = {64, static_cast<cuuint64_t>(kv.page_tokens) * static_cast<cuuint64_t>(kv.kv_heads),
                               static_cast<cuuint64_t>(kv.k_dim / 64), cuuint64_t{1} << 30};
  const cuuint64_t strides[3] = {static_cast<cuuint64_t>(kv.k_dim) * 2, 128, static_cast<cuuint64_t>(kv.page_stride)};
  const cuuint32_t box[4] = {64, static_cast<cuuint32_t>(run), static_cast<cuuint32_t>(halves), 1};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  return encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, kv.base + offset, sizes, strides, box, steps,
                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
bool map_kv(KvMaps& maps, const KvView& kv, int halves) {
  maps.run = std::min(kv.page_tokens, kChunk);
  return encoder() != nullptr && map_pages(maps.keys, kv, kv.k_offset, maps.run, halves) &&
         map_pages(maps.values, kv, kv.v_offset, maps.run, halves);
}

}  // namespace

bool attend_fits_but_form(const Attention& attention, const KvView& kv) {
  const bool pages = kv.page_tokens >= 8 && (kv.page_tokens & (kv.page_tokens - 1)) == 0 && kv.page_stride % 16 == 0 &&
                     kv.k_offset % 16 == 0 && kv.v_offset % 16 == 0;
  return attention.ahead == 0 && attention.kept == 0 && pages && kv.k_dim == kv.v_dim &&
         (kv.k_dim == 64 || kv.k_dim == 128) && kv.kv_heads > 0 && attention.heads % kv.kv_heads == 0 &&
         attention.heads / kv.kv_heads <= 16;
}

bool attend_fits(const Attention& attention, const KvView& kv) {
  return kv.form.plain() && attend_fits_but_form(attention, kv);
}

bool attend_turns(const Rope& rope) { return rope.dims > 0 && rope.dims % 8 == 0; }
int32_t attend_chunks(int32_t visible) { return (visible + kChunk - 1) / kChunk; }
int64_t attend_partial_floats(int64_t chunks, int32_t heads, int32_t dim) { return chunks * heads * (dim + 4); }

cudaError_t attend(cudaStream_t stream, const DeviceStep& step, const Attention& attention, View q, const KvView& kv,
                   View out, const AttendPlan& plan) {
  KvMaps whole, halves;
  if (!map_kv(whole, kv, kv.k_dim / 64) || !map_kv(halves, kv, 1)) return cudaErrorNotSupported;
  if (plan.shorts && !(plan.long_queries == 0 && attend_cluster(stream, step, attention, q, kv, out, whole, plan)))
    attend_short(stream, step, attention, q, kv, out, whole, plan);
  if (plan.long_queries > 0) attend_long(stream, step, attention, q, kv, out, halves, plan);
  return cudaSuccess;
}

}  // namespace millrace::cuda
