// A cache that forgets: what may be said of it, which models can, and what a row then reads.
#include "model/kv_keep.h"

#include "model/rig.h"
#include "model/shapes.h"

namespace millrace {
namespace {

using test::Runner;

TEST(KvKeep, IsReadAndWritten) {
  EXPECT_EQ(kv_keep_from("sinks:4,window:4096").value(), (KvKeep{4, 4096}));
  EXPECT_EQ(kv_keep_from("window:16,sinks:0").value(), (KvKeep{0, 16}));
  EXPECT_EQ(kv_keep_from("window:16").value(), (KvKeep{4, 16}));
  EXPECT_EQ(kv_keep_from("sinks:7,window:9").value().name(), "sinks:7,window:9");
  EXPECT_EQ(KvKeep().name(), "");
  EXPECT_EQ(kv_keep_from("layers:0-2+5+7-8,window:9").value(), (KvKeep{4, 9, {0, 1, 2, 5, 7, 8}}));
  EXPECT_EQ((KvKeep{1, 9, {0, 2, 3, 4, 9}}).name(), "sinks:1,window:9,layers:0+2-4+9");
  EXPECT_TRUE(kv_keep_from("window:9").value().bounded());
  EXPECT_FALSE(kv_keep_from("window:9,layers:0").value().bounded()) << "the others grow";
  EXPECT_EQ(reach_of({4, 96}, 1000), 100);
  EXPECT_EQ(reach_of({4, 96}, 50), 50);
  EXPECT_EQ(reach_of({4, 96, {1}}, 1000), 1000);
  EXPECT_EQ(reach_of({}, 1000), 1000);
  for (const char* wrong : {"",
                            ",",
                            ":",
                            "sinks",
                            "sinks:4",
                            "sinks:4,",
                            "sinks:4,window",
                            "sinks:4,window:",
                            "sinks:4,window:0",
                            "sinks:-1,window:8",
                            "sinks:129,window:8",
                            "sinks:4,window:99999999999",
                            "window:8,window:9",
                            "sinks:4 ,window:8",
                            "sinks:4,window:8x",
                            "heads:4,window:8",
                            "window:16777217",
                            "sinks:4,window:8,",
                            "layers:1",
                            "window:8,layers:",
                            "window:8,layers:1+1",
                            "window:8,layers:3-2",
                            "window:8,layers:2+1",
                            "window:8,layers:1+",
                            "window:8,layers:-1",
                            "window:8,layers:1-",
                            "window:8,layers:0-4096",
                            "window:8,layers:1,layers:2"}) {
    const auto read = kv_keep_from(wrong);
    ASSERT_FALSE(read.ok()) << wrong;
    EXPECT_NE(read.error().message.find("sinks:4,window:4096"), std::string::npos) << read.error().message;
  }
}

TEST(KvKeep, ModelsThatCannotForgetSayWhy) {
  const KvKeep keep = {4, 64};
  auto why = [&](const std::string& golden) {
    const Checkpoint checkpoint = Checkpoint::open(test::golden_path(golden)).value();
    ModelSource source = ModelSource::open(checkpoint).value();
    const auto done = source.forget(keep);
    return done.ok() ? std::string() : done.error().message;
  };
  EXPECT_EQ(why("llama-gqa-rope3"), "");
  EXPECT_EQ(why("bloom"), "") << "slopes are of distances, which are capped too";
  EXPECT_NE(why("gemma3_text").find("of its own"), std::string::npos);
  EXPECT_NE(why("opt").find("positions are a table"), std::string::npos);
  for (const auto& [name, words] : {std::pair("deepseek_v2", "latents"), std::pair("mamba", "a state"),
                                    std::pair("llama4_text", "by itself"), std::pair("zamba2", "a state")}) {
    if (std::filesystem::exists(test::golden_path(name))) {
      EXPECT_NE(why(name).find(words), std::string::npos) << why(name);
    }
  }
  if (std::filesystem::exists(test::golden_path("zamba2"))) {
    const Checkpoint checkpoint = Checkpoint::open(test::golden_path("zamba2")).value();
    ModelSource source = ModelSource::open(checkpoint).value();
    int32_t shares = 0;
    while (!source.spec().layers[static_cast<size_t>(shares)].shared) ++shares;
    const auto done = source.forget({4, 64, {shares}});
    ASSERT_FALSE(done.ok());
    EXPECT_NE(done.error().message.find("shares its attention"), std::string::npos) << done.error().message;
  }
  ModelSpec spec = named_shape("stories-14m").value();
  std::get<GqaSpec>(spec.layers[1].mixer).causal = false;
  EXPECT_FALSE(forget(spec, keep).ok());
  EXPECT_FALSE(spec.keep) << "nothing was changed";
  EXPECT_EQ(std::get<GqaSpec>(spec.layers[0].mixer).window, 0);
  EXPECT_TRUE(forget(spec, {}).ok());
}

// Streaming layers: these get the window, the others stay as they are, whatever windows those have.
TEST(KvKeep, OrSomeLayersOnly) {
  ModelSpec spec = named_shape("stories-14m").value();
  auto window = [&](size_t layer) { return std::get<GqaSpec>(spec.layers[layer].mixer).window; };
  const auto beyond = forget(spec, {4, 64, {1, 8}});
  ASSERT_FALSE(beyond.ok());
  EXPECT_NE(beyond.error().message.find("it has 8 layers"), std::string::npos) << beyond.error().message;
  EXPECT_EQ(window(1), 0) << "nothing was changed";
  std::get<GqaSpec>(spec.layers[0].mixer).window = 128;
  ASSERT_TRUE(forget(spec, {4, 64, {1, 3}}).ok());
  for (size_t layer = 0; layer < 8; ++layer)
    EXPECT_EQ(window(layer), layer == 0 ? 128 : layer == 1 || layer == 3 ? 64 : 0) << layer;
  EXPECT_EQ(std::get<GqaSpec>(spec.layers[3].mixer).kept, 4);
  EXPECT_EQ(std::get<GqaSpec>(spec.layers[2].mixer).kept, 0);
  EXPECT_EQ(spec.keep.name(), "sinks:4,window:64,layers:1+3");
  EXPECT_FALSE(forget(spec, {4, 64, {0}}).ok()) << "a window of its own";
}

ModelSpec one_layer() {
  ModelSpec spec = named_shape("stories-14m").value();
  spec.layers.resize(1);
  spec.vocab = 64;
  return spec;
}

std::vector<int32_t> text(int count) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back((i * 7 + i * i * 3 + i / 5) % 64);
  return tokens;
}

std::vector<float> last_row(const std::vector<float>& logits, size_t vocab) {
  return {logits.end() - static_cast<std::ptrdiff_t>(vocab), logits.end()};
}

// With one layer, keys depend on their own token alone. So a row far on must have the logits it would have if the
// tokens between the sinks and the window had never been: those of a plain model that is given the others only.
TEST(KvKeep, ReadsAsIfWhatIsForgottenHadNeverBeen) {
  constexpr int kSinks = 3, kWindow = 20;
  for (const bool cpu : {false, true}) {
    for (const bool neighbours : {false, true}) {
      auto backend = cpu ? make_cpu_backend({.threads = 1, .activations = Activations::float32}).value()
                         : make_reference_backend();
      ModelSpec spec = one_layer();
      spec.ropes[0].neighbours = neighbours;
      const auto plain = Model::random(spec, DType::f32, 5, *backend).value();
      ASSERT_TRUE(forget(spec, {kSinks, kWindow}).ok());
      const auto keeps = Model::random(spec, DType::f32, 5, *backend).value();
      const std::vector<int32_t> all = text(140);
      Runner forgetful(*keeps, *backend, 1, 140, DType::f32, 8);
      const std::vector<float> logits = forgetful.step(0, 0, all);
      for (const int end : {1, 10, 23, 24, 25, 60, 131, 140}) {
        std::vector<int32_t> left(all.begin(), all.begin() + std::min(end, kSinks));
        left.insert(left.end(), all.begin() + std::max(kSinks, end - kWindow), all.begin() + std::max(kSinks, end));
        if (end <= kSinks) left.resize(static_cast<size_t>(end));
        Runner fresh(*plain, *backend, 1, 40, DType::f32, 8);
        const std::vector<float> expected = last_row(fresh.step(0, 0, left), 64);
        const auto at = logits.begin() + static_cast<std::ptrdiff_t>((end - 1) * 64);
        EXPECT_LE(test::worst_difference(std::vector<float>(at, at + 64), expected), 2e-5f)
            << "after " << end << " tokens" << (cpu ? ", cpu" : "") << (neighbours ? ", neighbours" : "");
      }
      // And it does forget: another token in between changes nothing, one among the sinks does.
      std::vector<int32_t> other = all;
      other[100] = (other[100] + 1) % 64;
      Runner second(*keeps, *backend, 1, 140, DType::f32, 8);
      EXPECT_EQ(last_row(second.step(0, 0, other), 64), last_row(logits, 64));
      other[2] = (other[2] + 1) % 64;
      Runner third(*keeps, *backend, 1, 140, DType::f32, 8);
      EXPECT_NE(last_row(third.step(0, 0, other), 64), last_row(logits, 64));
    }
  }
}

// Until something is forgotten the bits are those of a model that forgets nothing; however it is cut, they are the
// same.
TEST(KvKeep, ChunksGiveTheSameBits) {
  ModelSpec spec = one_layer();
  spec.layers.push_back(spec.layers[0]);
  auto backend = make_cpu_backend({.threads = 1}).value();
  const auto plain = Model::random(spec, DType::q8_0, 5, *backend).value();
  ASSERT_TRUE(forget(spec, {5, 30}).ok());
  const auto keeps = Model::random(spec, DType::q8_0, 5, *backend).value();
  const std::vector<int32_t> all = text(170);
  {  // One layer of both: neither of the two models, and the cut cannot show either.
    ModelSpec half = one_layer();
    half.layers.push_back(half.layers[0]);
    ASSERT_TRUE(forget(half, {5, 30, {1}}).ok());
    const auto one = Model::random(half, DType::q8_0, 5, *backend).value();
    Runner whole(*one, *backend, 1, 170, DType::f16), first(*one, *backend, 1, 170, DType::f16);
    const std::vector<float> logits = whole.step(0, 0, all);
    std::vector<float> parts = first.step(0, 0, {all.begin(), all.begin() + 50});
    const std::vector<float> rest = first.step(0, 50, {all.begin() + 50, all.end()});
    parts.insert(parts.end(), rest.begin(), rest.end());
    EXPECT_EQ(parts, logits);
    Runner full(*plain, *backend, 1, 170, DType::f16), none(*keeps, *backend, 1, 170, DType::f16);
    EXPECT_NE(last_row(full.step(0, 0, all), 64), last_row(logits, 64));
    EXPECT_NE(last_row(none.step(0, 0, all), 64), last_row(logits, 64));
  }
  for (const KvForm form : {KvForm(DType::f16), KvForm(DType::bf16), KvForm(DType::i8), KvForm(DType::q4_0)}) {
    Runner whole(*keeps, *backend, 1, 170, form);
    const std::vector<float> logits = whole.step(0, 0, all);
    Runner full(*plain, *backend, 1, 170, form);
    const std::vector<float> unforgotten = full.step(0, 0, all);
    EXPECT_TRUE(std::equal(logits.begin(), logits.begin() + 35 * 64, unforgotten.begin())) << form.name();
    EXPECT_FALSE(std::equal(logits.begin(), logits.begin() + 36 * 64, unforgotten.begin())) << form.name();
    for (const int size : {1, 7, 33, 128}) {
      Runner runner(*keeps, *backend, 1, 170, form);
      std::vector<float> parts;
      for (int begin = 0; begin < 170; begin += size) {
        const auto some = runner.step(0, begin, {all.begin() + begin, all.begin() + std::min(begin + size, 170)});
        parts.insert(parts.end(), some.begin(), some.end());
      }
      EXPECT_EQ(parts, logits) << form.name() << ", chunks of " << size;
    }
  }
}

}  // namespace
}  // namespace millrace
