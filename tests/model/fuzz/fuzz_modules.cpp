// Any bytes as sentence-transformers' list of modules with their settings: it says how rows become one vector, in sizes
// that a model may have once check_spec() has seen them, or it is an error of one line.
#include "base/check.h"
#include "model/pool.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const auto json = parse_json({reinterpret_cast<const char*>(data), size});
  if (!json.ok()) return 0;
  const auto pool = read_modules(*json);
  if (!pool.ok()) {
    CHECK(!pool.error().message.empty());
    return 0;
  }
  ModelSpec spec = {.architecture = "bert", .vocab = 32, .width = 8, .context = 16};
  const NormSpec norm;
  const GqaSpec gqa = {.heads = 2, .kv_heads = 2, .head_dim = 4, .scale = 0.5f, .causal = false};
  spec.layers.assign(1, {.mixer = gqa, .ffn = DenseSpec{.width = 8}, .mixer_norm = norm, .ffn_norm = norm});
  spec.pool = *pool;
  spec.head = false;
  if (!check_spec(spec).ok()) return 0;
  for (size_t i = 0; i < pool->projections.size(); ++i) {
    CHECK(pool->projections[i].outputs > 0);
    CHECK(projection_file(spec, fmt::format("cls.{}", i)) == pool->projections[i].file);
  }
  CHECK(!pooling_name(pool->pooling).empty());
  return 0;
}
