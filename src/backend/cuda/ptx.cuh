// The few instructions of the machine that CUDA C++ has no words for. Device code only.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

// Set where code for Hopper is compiled. Files that are for Hopper only (cmake/cuda.cmake) need not ask; in others,
// what one of these instructions is for has a second way.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define MILLRACE_HOPPER 1
#else
#define MILLRACE_HOPPER 0
#endif

namespace millrace::cuda {

// Lets the next kernel start its preparations, once all thread blocks have said so.
__device__ inline void let_next_start() {
#if MILLRACE_HOPPER
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
// Waits until the kernel before has ended and its results can be read.
__device__ inline void see_previous_end() {
#if MILLRACE_HOPPER
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The same, and lets the next one start its preparations. Every kernel calls one of these, once: what is read before
// must not depend on other kernels. Only kernels that are short and small let the next one start before: starting it
// takes longer than they do (two to four microseconds). If all did, kernels of three steps later would take the room of
// those in between. On other GPUs kernels do not start early (rows.cuh).
__device__ inline void wait_for_previous() {
  see_previous_end();
  let_next_start();
}

// All threads of a cluster's thread blocks meet, and see what the others have written.
__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ inline void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}
__device__ inline int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Counters of what thread blocks have written: whoever sees the number sees that too.
__device__ inline unsigned read_counter(const unsigned* counter) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}
__device__ inline unsigned add_to_counter(unsigned* counter, unsigned number) {
  unsigned value;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(value) : "l"(counter), "r"(number) : "memory");
  return value;
}

// Sixteen bytes of something read once (weights).
__device__ inline uint4 load_once(const void* address) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(address));
  return value;
}

// sums (16 x 8) += weights (16 x 16) * inputs (16 x 8), bfloat16 into float32.
__device__ inline void multiply_add(float (&sums)[4], const uint4& weights, uint32_t inputs0, uint32_t inputs1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(weights.x), "r"(weights.y), "r"(weights.z), "r"(weights.w), "r"(inputs0), "r"(inputs1));
}

__device__ inline void multiply_add_f16(float (&sums)[4], const uint4& weights, uint32_t inputs0, uint32_t inputs1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(weights.x), "r"(weights.y), "r"(weights.z), "r"(weights.w), "r"(inputs0), "r"(inputs1));
}

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Four 8 x 8 matrices of 16-bit numbers, lane i giving the address of row i.
__device__ inline uint4 load_matrices(uint32_t address) {
  uint4 value;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address));
  return value;
}
__device__ inline uint4 load_matrices_turned(uint32_t address) {
  uint4 value;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address));
  return value;
}

// So many threads, of whole warps, meet at a barrier of this name; 0 is everybody's.
__device__ inline void group_sync(int name, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

// A barrier in shared memory that counts bytes of copies under way.
__device__ inline void barrier_begin(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
// Worked out once: the compiler would do it again at each use, which takes longer than a register is worth.
__device__ __forceinline__ uint32_t held(uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}
__device__ inline void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ inline void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// The barrier at the same place in the cluster's thread block number `rank`. No wider scope is named: that would be a
// fence for all of memory (lab/log.md).
__device__ inline void barrier_arrive_at(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
__device__ inline void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// For copies of what is read once: it leaves the second cache before anything else does, so that instructions and
// inputs stay there. (Naming the usual policy for other copies makes them slower than naming none: lab/log.md.)
__device__ inline uint64_t read_once() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
// Copies bytes (a multiple of sixteen) from memory to shared memory and counts them at the barrier.
__device__ inline void copy_bytes(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}
// Copies a box of a matrix, or of a stack of them, as its map says.
__device__ inline void copy_box(uint32_t to, const CUtensorMap& map, int col, int row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
          "r"(to),
      "l"(&map), "r"(col), "r"(row), "r"(barrier)
      : "memory");
}
__device__ inline void copy_box(uint32_t to, const CUtensorMap& map, int col, int row, int sheet, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
      "[%5];" ::"r"(to),
      "l"(&map), "r"(col), "r"(row), "r"(sheet), "r"(barrier)
      : "memory");
}
__device__ inline void copy_box(uint32_t to, const CUtensorMap& map, int col, int row, int sheet, uint32_t barrier,
                                uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(&map), "r"(col), "r"(row), "r"(sheet), "r"(barrier), "l"(policy)
      : "memory");
}
// The same, for the thread blocks of a cluster that `mask` names: the box arrives, and is counted, at the same places
// of each.
__device__ inline void copy_box_to(uint16_t mask, uint32_t to, const CUtensorMap& map, int col, int row, int sheet,
                                   uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(&map), "r"(col), "r"(row), "r"(sheet), "r"(barrier), "h"(mask)
      : "memory");
}
// Adds a box of numbers in shared memory to a matrix, as its map says. Under way until sent_read() (shared memory has
// been read) and sent_arrived(), both by the thread that sent it.
__device__ inline void add_box(const CUtensorMap& map, int col, int row, uint32_t from) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
      "r"(col), "r"(row), "r"(from)
      : "memory");
}
__device__ inline void sent_end() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
__device__ inline void sent_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ inline void sent_arrived() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
// Sixteen bytes from memory to shared memory, `bytes` of them read (0 or 16) and the rest zero.
__device__ inline void copy_16(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ inline void copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Left>
__device__ inline void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory");
}

}  // namespace millrace::cuda
