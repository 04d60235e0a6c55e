// HeldCalls: calls of CudaOps that wait for the next ones to show what they are for, so that one kernel can do several
// of them. Its rules:
//
// 1. Nobody sees it: joined or each for itself, calls give the same bits (`millrace verify ops --only layer` compares).
// 2. At most one call of each kind waits, and only for what comes right behind it. Every other call first does what is
//    held back (CudaOps::flush). So inputs do not change while a call waits; a room that was given back meanwhile is
//    not handed out before (CudaOps::scratch).
// 3. What waits for what:
//      norm      of up to kFusedNormRows rows, for the product that reads it: the product norms its inputs itself, if
//                it wants them in the form that activations have anyway
//      product   for the sum it goes to (add, add_norm): it is added as it comes. Its own result is then never
//                written, as ops.h allows; whoever reads it all the same fails the step (CudaOps::view)
//      qkv       the products of queries, keys and values of prompts, for finish
//      finish    rotation and storing, for attention over that cache: it is done as the products come (prompts), or by
//                attention itself (single rows)
// 4. What waits belongs to a step and ends with it: begin() drops it, fetch() does it.
#pragma once

#include <optional>

#include "backend/cuda/kernels.h"
#include "backend/ops.h"

namespace millrace::cuda {

inline constexpr int32_t kFusedNormRows = 2;  // beyond, a kernel of its own is quicker than every thread block doing it

struct HeldCalls {
  struct Product {
    Weight weight;
    Tensor in, out;
    std::optional<View> seen;  // the input, unless it is a norm that is held back too
    CodedRows coded = {};      // the input of FP8 weights: made at once, in room that nobody asks for before
  };
  struct NormCall {
    Norm norm;
    Tensor in, out;
  };
  struct Qkv {
    Products work;
    Tensor in, q, k, v;
    View seen;
  };
  struct Finish {
    Rope rope;
    int32_t heads;
    Tensor q, k, v;
    KvView kv;
  };
  std::optional<Product> product;
  std::optional<NormCall> norm;
  std::optional<Qkv> qkv;
  std::optional<Finish> finish;
};

}  // namespace millrace::cuda
