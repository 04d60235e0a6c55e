// Experts as files have them: what is missing, too many, or not needed.
#include "model/edit.h"
#include "model/shapes.h"

namespace millrace {
namespace {

using test::Edited;

std::string complaint(Edited& edited) {
  auto source = edited.source();
  return source.ok() ? std::string() : source.error().message;
}

TEST(Experts, MistakesAreRefusedWithTheNumbers) {
  struct Mistake {
    std::string_view key;
    int64_t value;
    std::string_view expected;
  };
  for (const Mistake& each :
       {Mistake{"num_experts_per_tok", 9, "'num_experts_per_tok' is 9, but there are only 8 experts"},
        Mistake{"n_group", 3, "8 experts are not 3 groups of one size"},
        Mistake{"n_group", 8, "a token has 2 experts, but 1 groups of 1 have only 1"},
        Mistake{"topk_group", 2, "the groups of a token is 2: expected 1 to 1"},
        Mistake{"n_routed_experts", 9, "has shape [8, 64]: expected [9, 64]"},
        Mistake{"moe_intermediate_size", 50, "has shape [48, 64]: expected [50, 64]"}}) {
    Edited edited("glm4_moe");
    edited.config[each.key] = each.value;
    EXPECT_NE(complaint(edited).find(each.expected), std::string::npos) << complaint(edited);
  }
}

TEST(Experts, EveryExpertMustBeThere) {
  Edited edited("qwen2_moe");
  std::erase_if(edited.tensors,
                [](const auto& tensor) { return tensor.name.ends_with("1.mlp.experts.7.up_proj.weight"); });
  EXPECT_EQ(complaint(edited),
            "the tensor 'model.layers.1.mlp.experts.7.up_proj.weight' is missing: there are to be 8");
}

TEST(Experts, LayersThatPredictAheadAreLeftOut) {
  Edited edited("glm4_moe");  // three layers, and a configuration that has one more
  for (const char* name : {"model.layers.3.eh_proj.weight", "model.layers.3.mlp.gate.weight"}) {
    auto copy = edited.tensor("model.layers.1.mlp.gate.weight");
    copy.name = name;
    edited.tensors.push_back(copy);
  }
  auto source = edited.source();
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(source->layers_ahead(), 1);
  EXPECT_EQ(source->spec().layers.size(), 3u);
  edited.config["num_nextn_predict_layers"] = 0;
  EXPECT_NE(complaint(edited).find("the file has tensors that glm4_moe does not"), std::string::npos);
}

TEST(Experts, CountsWhatATokenNeeds) {
  struct Known {
    std::string_view shape;
    double all, active;
  };
  for (const Known& known : {Known{"olmoe-7b", 6.92e9, 1.18e9}, Known{"qwen3-30b-a3b", 30.5e9, 3.04e9},
                             Known{"gpt-oss-20b", 20.9e9, 3.61e9}, Known{"mixtral-8x7b", 46.7e9, 12.75e9}}) {
    const ModelSpec spec = named_shape(known.shape).value();
    EXPECT_NEAR(static_cast<double>(parameters(spec)), known.all, 0.01 * known.all) << known.shape;
    EXPECT_NEAR(static_cast<double>(active_parameters(spec)), known.active, 0.01 * known.active) << known.shape;
  }
}

}  // namespace
}  // namespace millrace
