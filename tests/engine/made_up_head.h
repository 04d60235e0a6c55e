// Heads made up for a tiny model, in their makers' layouts.
#pragma once

#include <cstring>
#include <functional>

#include "base/rng.h"
#include "model/edit.h"

namespace millrace {

// A head in a maker's layout for the tiny model: width 64, 3 layers, 320 tokens.
class MadeUp : public test::Edited {
 public:
  explicit MadeUp(std::string_view kind) : Edited("llama-gqa-rope3") {
    tensors.clear();
    if (kind == "medusa") {
      for (int i = 0; i < 3; ++i) {
        add(fmt::format("{}.0.linear.weight", i), {64, 64});
        add(fmt::format("{}.0.linear.bias", i), {64});
        add(fmt::format("{}.1.weight", i), {320, 64});
      }
      return;
    }
    config.erase("rope_parameters");
    const bool eagle = kind == "eagle3";
    const std::string layer = eagle ? "midlayer." : "model.layers.3.";
    add_layer(layer, eagle ? 128 : 64);
    if (eagle) {
      add("fc.weight", {64, 192});
      add(layer + "hidden_norm.weight", {64});
      add("norm.weight", {64});
      add("lm_head.weight", {100, 64});
      add_map([](int64_t i) { return 2 * i; });  // token i stands for 3 i
    } else {
      add(layer + "eh_proj.weight", {64, 128});
      for (const char* name : {"enorm", "hnorm", "shared_head.norm"}) add(layer + name + ".weight", {64});
    }
  }
  void add_map(const std::function<int64_t(int64_t)>& difference) {
    remove("d2t");
    std::string bytes(100 * 8, '\0');
    for (int64_t i = 0; i < 100; ++i) {
      const int64_t value = difference(i);
      std::memcpy(bytes.data() + i * 8, &value, 8);
    }
    tensors.push_back({"d2t", DType::i64, {100}, bytes});
  }
  void add(const std::string& name, const std::vector<int64_t>& shape) {
    int64_t values = 1;
    for (const int64_t extent : shape) values *= extent;
    std::string bytes(static_cast<size_t>(values) * sizeof(float), '\0');
    for (int64_t i = 0; i < values; ++i) {
      const auto at = static_cast<uint32_t>(tensors.size());
      float value = static_cast<float>(uniform({7, at, static_cast<uint32_t>(i), 0}) - 0.5) * 0.4f;
      if (name.find("norm") != std::string::npos) value += 1;
      std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(float), &value, sizeof(float));
    }
    tensors.push_back({name, DType::f32, shape, bytes});
  }

 private:
  void add_layer(const std::string& layer, int64_t inputs) {
    for (const auto& [name, rows] : {std::pair("q", 64), std::pair("k", 32), std::pair("v", 32)})
      add(layer + "self_attn." + name + "_proj.weight", {rows, inputs});
    add(layer + "self_attn.o_proj.weight", {64, 64});
    for (const char* name : {"gate", "up"}) add(layer + "mlp." + name + "_proj.weight", {160, 64});
    add(layer + "mlp.down_proj.weight", {64, 160});
    for (const char* name : {"input", "post_attention"}) add(layer + name + "_layernorm.weight", {64});
  }
};

}  // namespace millrace
