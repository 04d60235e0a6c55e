// What tests of the model need: a model with a cache of its own that takes tokens and gives logits, and the goldens.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/reference/reference.h"
#include "cache/spec.h"
#include "cache/store.h"
#include "model/architecture.h"
#include "model/forward.h"
#include "model/model.h"
#include "tensor/checkpoint.h"

namespace millrace::test {

inline std::filesystem::path golden_folder() {
  return std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/model/golden";
}

inline std::vector<std::string> folder_names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// What lies beside the project and is read in place; absent elsewhere.
inline std::filesystem::path shared_golden_folder() {
  return std::filesystem::path(MILLRACE_SOURCE_DIR).parent_path() / "shared/golden";
}

inline std::filesystem::path golden_path(const std::string& name) {
  const std::filesystem::path own = golden_folder() / name;
  return std::filesystem::exists(own) ? own : shared_golden_folder() / name;
}

// The project's goldens, and those beside it whose architecture is known.
inline std::vector<std::string> golden_names() {
  std::vector<std::string> names = folder_names(golden_folder());
  if (!std::filesystem::exists(shared_golden_folder())) return names;
  for (const std::string& name : folder_names(shared_golden_folder())) {
    const bool there = std::find(names.begin(), names.end(), name) != names.end();
    if (!there && find_architecture(name).ok()) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline std::string test_name(const ::testing::TestParamInfo<std::string>& each) {
  std::string name = each.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// The largest difference, as a part of the largest number expected.
inline float worst_difference(std::span<const float> got, std::span<const float> expected) {
  float largest = 0, worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    worst = std::max(worst, std::abs(got[i] - expected[i]));
  }
  return worst / largest;
}

// What another implementation computed: the logits of every input token, then 16 greedy tokens and how far ahead each
// was.
struct Golden {
  std::vector<int32_t> input, greedy;
  std::vector<float> logits, gap;

  static Golden read(const std::filesystem::path& folder) {
    auto file = Checkpoint::open(folder / "golden.safetensors");
    EXPECT_TRUE(file.ok()) << file.error().message;
    Golden golden;
    auto copy = [&](std::string_view name, auto& out) {
      const StoredTensor* tensor = file->find(name);
      out.resize(static_cast<size_t>(tensor->values()));
      std::memcpy(out.data(), tensor->bytes.data(), tensor->bytes.size());
    };
    copy("input_ids", golden.input);
    copy("greedy", golden.greedy);
    copy("logits", golden.logits);
    copy("greedy_gap", golden.gap);
    return golden;
  }
};

// How far logits computed in float32 may be from stored ones. The file of MiniMax keeps its tables of decays in
// bfloat16, and the stored logits came of those; those of Qwen 3.5 were computed in float32 by chunks.
inline float golden_limit(const std::string& name) {
  return name == "minimax" ? 2e-3f : name == "qwen3_5_text" ? 5e-5f : 2e-5f;
}

// One model and room for several sequences. Pages are handed out in a scattered order, as a busy cache would.
class Runner {
 public:
  Runner(const Model& model, Backend& backend, int sequences, int tokens, const KvForm& kv_type = DType::f32,
         int page_tokens = 16)
      : model_(model) {
    const std::vector<KvShape> shapes = kv_shapes(model.spec(), kv_type);
    layout_ = plan_layout(*specs_of(shapes), {.page_tokens = page_tokens}).value();
    int pages = 0;
    for (const CacheGroup& group : layout_.groups) pages += sequences * group.pages_for(tokens);
    const int64_t bytes = *Store::bytes_needed(layout_, pages);
    std::byte* memory = backend.allocate(Purpose::kv, bytes).value();
    store_ = std::make_unique<Store>(Store::over(layout_, shapes, pages, {memory, static_cast<size_t>(bytes)}).value());
    views_ = kv_views(model.spec(), *store_);
    int next = 0;
    for (const CacheGroup& group : layout_.groups) {
      stride_.push_back(group.pages_for(tokens));
      std::vector<int32_t> table(static_cast<size_t>(sequences * group.pages_for(tokens)));
      for (int32_t& page : table) page = next++;
      tables_.push_back(std::move(table));
    }
    for (auto& table : tables_) std::reverse(table.begin(), table.end());
    const int rows = sequences * tokens;
    ops_ = backend.make_ops(workspace_bytes(model, rows, rows)).value();
  }

  struct Work {
    int sequence;
    int begin;
    std::vector<int32_t> tokens;
  };

  // Computes the rows of all works in one step; logits of every row, one after the other.
  std::vector<float> step(const std::vector<Work>& works, Tensor* hidden = nullptr) {
    std::vector<int32_t> tokens, positions, visible, sequence, first = {0}, wanted;
    std::vector<PageTables> groups;
    std::vector<std::vector<int32_t>> tables;
    for (size_t g = 0; g < tables_.size(); ++g) {
      std::vector<int32_t> table;
      for (const Work& work : works) {
        const auto begin = tables_[g].begin() + work.sequence * stride_[g];
        table.insert(table.end(), begin, begin + stride_[g]);
      }
      tables.push_back(std::move(table));
    }
    for (size_t g = 0; g < tables.size(); ++g) groups.push_back({tables[g].data(), stride_[g]});
    for (size_t s = 0; s < works.size(); ++s) {
      for (size_t i = 0; i < works[s].tokens.size(); ++i) {
        tokens.push_back(works[s].tokens[i]);
        positions.push_back(works[s].begin + static_cast<int32_t>(i));
        visible.push_back(positions.back() + 1);
        sequence.push_back(static_cast<int32_t>(s));
      }
      first.push_back(static_cast<int32_t>(tokens.size()));
    }
    wanted.resize(tokens.size());
    std::iota(wanted.begin(), wanted.end(), 0);
    if (wanted_ >= 0) wanted.erase(wanted.begin(), wanted.end() - wanted_);
    const Step step = {.rows = static_cast<int32_t>(tokens.size()),
                       .sequences = static_cast<int32_t>(works.size()),
                       .wanted = static_cast<int32_t>(wanted.size()),
                       .tokens = tokens.data(),
                       .positions = positions.data(),
                       .visible = visible.data(),
                       .sequence = sequence.data(),
                       .first_row = first.data(),
                       .wanted_rows = wanted.data(),
                       .groups = groups};
    const Tensor logits = forward(*ops_, model_, views_, step, hidden);
    std::vector<float> out;
    for (int64_t r = 0; r < logits.rows; ++r) out.insert(out.end(), logits.row(r), logits.row(r) + logits.cols);
    return out;
  }

  void want_last(int rows) { wanted_ = rows > 0 ? rows : -1; }  // of the step; 0: all
  void want_none() { wanted_ = 0; }

  std::vector<float> step(int sequence, int begin, std::vector<int32_t> tokens) {
    return step({{sequence, begin, std::move(tokens)}});
  }

 private:
  const Model& model_;
  CacheLayout layout_;
  std::unique_ptr<Store> store_;
  std::vector<KvView> views_;
  std::vector<int> stride_;
  std::vector<std::vector<int32_t>> tables_;
  std::unique_ptr<Ops> ops_;
  int wanted_ = -1;
};

inline int32_t best(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// The tokens a model chooses after its input, one at a time through the cache.
inline std::vector<int32_t> greedy(Runner& runner, std::vector<float> last, int position, int count) {
  std::vector<int32_t> out;
  for (int i = 0; i < count; ++i) {
    out.push_back(best(last));
    last = runner.step(0, position + i, {out.back()});
  }
  return out;
}

}  // namespace millrace::test
