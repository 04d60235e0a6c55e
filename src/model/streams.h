// What stands beside the halves of a layer: inputs of each layer's own that are looked up by token (Gemma 3n, 4),
// several streams of which a layer reads and corrects one (AltUp), and a second path of low rank beside the mixer
// (LAuReL). Called by forward(), as calls on Ops.
#pragma once

#include "backend/ops.h"
#include "model/spec.h"
#include "model/weights.h"

namespace millrace {

// Tensors that a pass keeps beside the residual stream; empty where the model has no such thing.
struct Beside {
  Tensor inputs;       // [rows, layers * width of a layer's input]
  Tensor streams;      // [rows, streams * width]
  Tensor predictions;  // the same, as the layer at hand expects them
  Tensor laurel;       // [rows, width]: what the second path of the layer at hand gave
  Tensor embedded;     // [rows, width]: what entered the first layer, for those that read it again
};

// Room for all of it, the inputs of all layers, and the streams that start from the embedded tokens x.
Beside begin_beside(Ops& ops, const ModelSpec& spec, const ModelWeights& weights, const Step& step, Tensor x);
// Before a layer: what the streams are expected to be; x becomes the one the layer reads.
void predict_streams(Ops& ops, const ModelSpec& spec, const StreamWeights& weights, const Beside& beside, Tensor x);
// The second path of a layer, from what its mixer reads.
void run_laurel(Ops& ops, const LaurelWeights& weights, int32_t rank, Tensor in, const Beside& beside);
// After a layer's halves: x is their result. Corrects all streams by it, adds the layer's input, scales.
void finish_beside(Ops& ops, const ModelSpec& spec, const LayerSpec& layer, const LayerWeights& weights, int64_t index,
                   const Beside& beside, Tensor x);
// After the last layer: x becomes the mean of all streams.
void join_streams(Ops& ops, const ModelSpec& spec, const ModelWeights& weights, const Beside& beside, Tensor x);

}  // namespace millrace
