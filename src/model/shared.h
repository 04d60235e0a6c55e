// Attention and a feed-forward part that several layers share (SharedSpec): one set of weights, a small change of the
// feed-forward part and a product for each use. Called where layers are: slots, checks, loading, forward().
#pragma once

#include "model/slots.h"
#include "tensor/checkpoint.h"

namespace millrace {

// Slots of layer `index`: the shared weights where it is the one that has them, and those of its own use.
void visit_shared(SlotWalk& walk, const SharedSpec& spec, int32_t index, SharedWeights& weights);
Result<void> check_shared(const ModelSpec& spec, int32_t index);
// A file that has another set of weights for a layer means these, whoever else could share.
void settle_shared(const Checkpoint& checkpoint, ModelSpec& spec);
// Layers that share weights get those of the layer that has them.
void hand_out_shared(const ModelSpec& spec, ModelWeights& weights);
// What it gives, [rows, width], from the stream and the embedded tokens. Keys and values are the layer's.
void run_shared(Ops& ops, const SharedSpec& spec, const SharedWeights& weights, const KvView& kv, Tensor x,
                Tensor embedded, Tensor out);

}  // namespace millrace
