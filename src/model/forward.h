// The network: written once, as calls on Ops. A mixer or ffn is a function of its kind (model/mixers, model/ffns); what
// differs between models is data in the spec. Nothing here allocates but scratch of the Ops, nothing depends on values.
#pragma once

#include <span>
#include <vector>

#include "backend/ops.h"
#include "cache/store.h"
#include "model/model.h"

namespace millrace {

// Streams that somebody outside the network reads, of every row of a step, side by side in `out`.
struct Taps {
  std::vector<int32_t> layers;         // entering these; the number of layers: after the last, before the final norm
  const int32_t* every_row = nullptr;  // [rows] 0, 1, 2 ...
  Tensor out;                          // [rows, layers * width]
};

// One pass over the step's tokens: logits [wanted, vocab], in the Ops' scratch until the next step. `kv` has one view
// per layer; layers that read another's keys have that layer's. If `hidden` is given it becomes the rows the head reads
// [wanted, width]. A step that wants nothing only fills the cache, and `taps` if there are any.
Tensor forward(Ops& ops, const Model& model, std::span<const KvView> kv, const Step& step, Tensor* hidden = nullptr,
               const Taps* taps = nullptr);

// One pass over whole texts, each a sequence of the step: [sequences, outputs of the last product after pooling, or
// width]. For Pooling::first and last the step wants exactly that row of each sequence, for the others all rows.
Tensor encode(Ops& ops, const Model& model, std::span<const KvView> kv, const Step& step, Pooling pooling);
// Of the vectors that encode() gives.
int32_t encoded_width(const ModelSpec& spec);

// What each layer keeps of the past; layers that read another's keys keep nothing.
std::vector<KvShape> kv_shapes(const ModelSpec& spec, const KvForm& form);
// The views forward() wants: the store's from its layer `first` on, or of the layer whose keys are read.
std::vector<KvView> kv_views(const ModelSpec& spec, const Store& store, int first = 0);

// Views of nothing, for passes under trace.
std::vector<KvView> kv_outlines(const ModelSpec& spec, const KvForm& form);

// Workspace that steps of up to so many rows and wanted rows need, found by running forward() under trace. Backends add
// their fixed_workspace() themselves.
int64_t workspace_bytes(const Model& model, int32_t max_rows, int32_t max_wanted,
                        std::span<const int32_t> tapped_layers = {});
// The same for encode(), of up to so many texts at a time.
int64_t encode_workspace_bytes(const Model& model, int32_t max_rows, int32_t max_sequences, Pooling pooling);

}  // namespace millrace
