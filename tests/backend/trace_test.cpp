// Trace against costs worked out by hand for a Llama layer, and the workspace it plans against what backends then need.
#include "backend/rig.h"

namespace millrace::testing {
namespace {

struct Layer {
  int64_t width, ffn;
  int32_t heads, kv_heads, head_dim;
};

Weight sized(DType type, int64_t rows, int64_t cols) {
  Weight weight;
  weight.type = type;
  weight.rows = rows;
  weight.cols = cols;
  weight.bytes = bytes_of(type, rows * cols);
  return weight;
}

struct LayerWeights {
  Weight q, k, v, o, gate, up, down;
};

template <class Make>
LayerWeights make_weights(const Layer& l, Make make) {
  int64_t q = int64_t{l.heads} * l.head_dim, kv = int64_t{l.kv_heads} * l.head_dim;
  return {make(q, l.width),     make(kv, l.width),    make(kv, l.width),   make(l.width, q),
          make(l.ffn, l.width), make(l.ffn, l.width), make(l.width, l.ffn)};
}

void run_layer(Ops& ops, const Step& step, const Layer& l, const LayerWeights& w, const Norm& norm, const Rope& rope,
               const KvView& kv) {
  ops.begin(step);
  int64_t q_cols = int64_t{l.heads} * l.head_dim, kv_cols = int64_t{l.kv_heads} * l.head_dim;
  Tensor x = ops.scratch(step.rows, l.width), normed = ops.scratch(step.rows, l.width);
  ops.clamp(0, x);  // whatever lies there
  ops.norm(norm, 1, x, normed);
  int64_t start = ops.mark();
  Tensor q = ops.scratch(step.rows, q_cols), k = ops.scratch(step.rows, kv_cols), v = ops.scratch(step.rows, kv_cols);
  ops.linear_qkv(w.q, w.k, w.v, normed, q, k, v);
  QkvFinish finish;
  finish.rope = rope;
  ops.finish_qkv(finish, l.heads, q, k, v, kv);
  Tensor mixed = ops.scratch(step.rows, q_cols);
  Attention attention;
  attention.heads = l.heads;
  ops.attend(attention, q, kv, mixed);
  ops.linear(w.o, mixed, normed);
  ops.restore(start);
  ops.add_norm(normed, 1, x, norm, normed);
  Tensor inner = ops.scratch(step.rows, l.ffn);
  ops.linear_glu(w.gate, w.up, Activation::silu, normed, inner);
  ops.linear(w.down, inner, normed);
  ops.add(normed, 1, x);
}

TEST(Trace, LlamaLayerByHand) {
  Layer l{2048, 8192, 32, 8, 64};  // Llama 3.2 1B
  std::vector<float> some(2048, 1.0f);
  Norm norm{NormKind::rms, 1e-5f, some.data(), nullptr, l.width};
  Rope rope{some.data(), 64, 1, false};
  KvView kv{nullptr, 0, 0, 0, 16, 8, 64, 64, DType::f16, 0};
  LayerWeights w = make_weights(l, [](int64_t rows, int64_t cols) { return sized(DType::q8_0, rows, cols); });
  std::vector<Piece> pieces = {{1000, 1}, {0, 10}};
  Batch batch(pieces, 16, 1);
  Step step = batch.step();
  TraceOps trace;
  run_layer(trace, step, l, w, norm, rope, kv);
  TraceSummary summary = trace.summary();

  int64_t parameters = 2048 * 2048 * 2 + 2048 * 512 * 2 + 3 * 2048 * 8192;
  EXPECT_EQ(parameters, 60817408);  // 16 of these and the table of 128256 x 2048 make the model's 1.24e9
  Cost linear = summary.by_op[{"linear", DType::q8_0}];
  EXPECT_EQ(linear.calls, 7);
  EXPECT_EQ(linear.weight_bytes, parameters / 32 * 34);
  EXPECT_DOUBLE_EQ(linear.flops, 2.0 * 11 * static_cast<double>(parameters));

  // 1001 positions of one sequence, 10 of the other, each read once: 8 heads x 128 halves.
  Cost attend = summary.by_op[{"attend", DType::f16}];
  EXPECT_EQ(attend.kv_bytes, (1001 + 10) * 8 * 128 * 2);
  EXPECT_DOUBLE_EQ(attend.flops, (1001 + 55) * 32.0 * (2 * 128 + 10));
  EXPECT_EQ((summary.by_op[{"kv_store", DType::f16}].kv_bytes), 11 * 8 * 128 * 2);
  EXPECT_EQ((summary.by_op[{"norm", DType::f32}].weight_bytes), 2 * 2048 * 4);

  int64_t weight_bytes = 0;
  for (const TraceRecord& record : trace.records()) weight_bytes += record.cost.weight_bytes;
  EXPECT_EQ(summary.total.weight_bytes, weight_bytes);
  EXPECT_EQ(summary.total.calls, static_cast<int64_t>(trace.records().size()));
}

TEST(Trace, WindowsAreReadOnce) {
  std::vector<Piece> pieces = {{1000, 4}};
  Batch batch(pieces, 16, 1);
  Step step = batch.step();
  TraceOps trace;
  trace.begin(step);
  Attention attention;
  attention.heads = 4;
  attention.window = 100;
  KvView kv{nullptr, 0, 0, 0, 16, 2, 64, 64, DType::f32, 0};
  Tensor q = trace.scratch(4, 256);
  trace.attend(attention, q, kv, q);
  EXPECT_EQ(trace.records()[0].cost.kv_bytes, 103 * 2 * 128 * 4);
  EXPECT_DOUBLE_EQ(trace.records()[0].cost.flops, 400 * 4.0 * (2 * 128 + 10));
}

// What trace plans is enough for every backend, and a layer runs under all of them.
TEST(Trace, PlansTheWorkspace) {
  Layer l{96, 200, 6, 2, 16};
  Random random(3);
  std::vector<float> frequencies = random.normals(8), weight = random.normals(96);
  Norm norm{NormKind::rms, 1e-5f, weight.data(), nullptr, l.width};
  Rope rope{frequencies.data(), 16, 1, false};
  for (int32_t rows : {1, 5, 33}) {
    std::vector<Piece> pieces = {{0, rows}};
    Batch batch(pieces, 16, 1);
    Step step = batch.step();
    Cache cache({2, 16, 16, 16, DType::f16}, batch.page_count);
    for (DType type : {DType::f32, DType::q8_0, DType::bf16}) {
      if (l.ffn % format(type).group != 0) l.ffn = 224;
      TraceOps trace;
      run_layer(trace, step, l, make_weights(l, [&](int64_t r, int64_t c) { return sized(type, r, c); }), norm, rope,
                cache.view);
      for (std::string_view isa : cpu_isas()) {
        for (int threads : {1, 3}) {
          auto backend =
              std::move(make_cpu_backend({.threads = threads, .isa = isa, .activations = Activations::fast})).value();
          auto ops = std::move(backend->make_ops(trace.workspace_bytes())).value();
          LayerWeights w = make_weights(l, [&](int64_t r, int64_t c) {
            return backend->upload({type, r, c, random_matrix(type, r, c, random)}, WeightUse::linear, {}).value();
          });
          run_layer(*ops, step, l, w, norm, rope, cache.view);  // a plan that is too small ends in CHECK
        }
      }
    }
  }
}

TEST(TraceBackend, ChargesLikeTheOther) {
  auto real = std::move(make_cpu_backend({})).value();
  auto trace = make_trace_backend(real.get());
  auto weight = trace->upload({DType::q4_k, 512, 1024, {}}, WeightUse::linear, {});
  ASSERT_TRUE(weight.ok());
  EXPECT_TRUE(static_cast<bool>(*weight));
  EXPECT_EQ(weight->bytes, real->weight_bytes(DType::q4_k, 512, 1024, WeightUse::linear));
  EXPECT_EQ(trace->used(Purpose::weights), weight->bytes);
  trace->set_limit(weight->bytes + 1000);
  EXPECT_FALSE(trace->allocate(Purpose::kv, 1001).ok());
  EXPECT_TRUE(trace->allocate(Purpose::kv, 1000).ok());
}

}  // namespace
}  // namespace millrace::testing
