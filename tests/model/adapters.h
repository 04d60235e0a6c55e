// Adapters made by tests: tensors of small numbers under names a test gives, written as a PEFT directory, and the same
// change worked into a model's own weights, which needs none of the code under test.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/rng.h"
#include "tensor/files.h"

namespace millrace::test {

// What changes one stored matrix [outs, ins]: scale * up * down.
struct Lora {
  std::string module;  // "model.layers.0.self_attn.q_proj"
  int64_t rank = 0, ins = 0, outs = 0;
  std::vector<float> down, up;  // [rank, ins], [outs, rank]

  Lora(std::string name, int64_t of_rank, int64_t inputs, int64_t outputs, uint64_t seed, double size = 0.2)
      : module(std::move(name)), rank(of_rank), ins(inputs), outs(outputs) {
    auto fill = [&](std::vector<float>& numbers, int64_t count, uint32_t side) {
      std::vector<double> draws(static_cast<size_t>(count));
      uniforms({.seed = seed, .choice = side}, draws);
      for (double draw : draws) numbers.push_back(static_cast<float>((draw - 0.5) * size));
    };
    fill(down, rank * ins, 1);
    fill(up, outs * rank, 2);
  }
  double change(int64_t out, int64_t in) const {  // before scaling
    double sum = 0;
    for (int64_t j = 0; j < rank; ++j)
      sum += static_cast<double>(up[static_cast<size_t>(out * rank + j)]) * down[static_cast<size_t>(j * ins + in)];
    return sum;
  }
};

struct SavedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> numbers;
};

inline std::string safetensors_of(const std::vector<SavedTensor>& tensors) {
  std::string data;
  JsonObject header;
  for (const SavedTensor& each : tensors) {
    JsonArray shape;
    for (int64_t extent : each.shape) shape.emplace_back(extent);
    const size_t bytes = each.numbers.size() * sizeof(float);
    header[each.name] = {
        {"dtype", "F32"}, {"shape", shape}, {"data_offsets", JsonArray{data.size(), data.size() + bytes}}};
    data.append(reinterpret_cast<const char*>(each.numbers.data()), bytes);
  }
  std::string text = to_text(header);
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t size = text.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + text + data;
}

inline JsonObject peft_config(int64_t rank, double alpha) {
  return {{"peft_type", "LORA"}, {"r", rank}, {"lora_alpha", alpha}, {"bias", "none"}};
}

inline std::vector<SavedTensor> peft_tensors(const std::vector<Lora>& loras) {
  std::vector<SavedTensor> tensors;
  for (const Lora& each : loras) {
    tensors.push_back({"base_model.model." + each.module + ".lora_A.weight", {each.rank, each.ins}, each.down});
    tensors.push_back({"base_model.model." + each.module + ".lora_B.weight", {each.outs, each.rank}, each.up});
  }
  return tensors;
}

inline void write_peft(const Folder& folder, const JsonObject& config, const std::vector<SavedTensor>& tensors) {
  folder.write("adapter_config.json", to_text(config));
  folder.write("adapter_model.safetensors", safetensors_of(tensors));
}

}  // namespace millrace::test
