// Adapters: logits that another implementation computed with them, the same change worked into the weights, bits that
// do not depend on who else is in a step, and what is refused.
#include "model/adapter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "backend/cpu/cpu.h"
#include "backend/reference/reference.h"
#include "cache/kv_cache.h"
#include "eval/golden.h"
#include "model/adapters.h"
#include "model/edit.h"
#include "tensor/gguf_writer.h"
#include "tensor/half.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using test::Folder;
using test::Lora;

fs::path own_folder() { return fs::path(MILLRACE_SOURCE_DIR) / "tests/eval/adapters"; }
fs::path shared_folder() { return fs::path(MILLRACE_SOURCE_DIR).parent_path() / "shared/golden-formats/adapters"; }
fs::path folder_of(const std::string& name) {
  return fs::exists(own_folder() / name) ? own_folder() / name : shared_folder() / name;
}

// Whole modules that replace the model's are refused, whatever others do with them.
bool is_refused(const std::string& name) { return name.ends_with("-refuse") || name.ends_with("-saved-head"); }

std::vector<std::string> names(bool refused) {
  std::vector<std::string> out;
  for (const fs::path& folder : {own_folder(), shared_folder()}) {
    if (!fs::exists(folder)) continue;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (!entry.is_directory()) continue;
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("base-") && is_refused(name) == refused &&
          std::find(out.begin(), out.end(), name) == out.end())
        out.push_back(name);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string base_of(const std::string& name) { return "base-" + name.substr(0, name.find('-')); }

struct Loaded {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  std::unique_ptr<Executor> executor;

  static Loaded open(const fs::path& path, std::unique_ptr<Backend> backend, ExecutorOptions options) {
    Loaded loaded;
    loaded.backend = std::move(backend);
    const Checkpoint checkpoint = Checkpoint::open(path).value();
    loaded.model = Model::load(checkpoint, *loaded.backend, {.keep = Keep::exact}).value();
    loaded.executor = Executor::create(*loaded.model, *loaded.backend, options).value();
    return loaded;
  }
  const ModelSpec& spec() const { return model->spec(); }
  void use(const fs::path& adapter) {
    auto read = read_adapter(adapter, spec());
    ASSERT_TRUE(read.ok()) << read.error().message;
    auto place = executor->load_adapter(*read);
    ASSERT_TRUE(place.ok()) << place.error().message;
    executor->use_adapter(*place, 1);
  }
};

class AdapterGolden : public ::testing::TestWithParam<std::string> {
 protected:
  void check(std::unique_ptr<Backend> backend, DType kv, GoldenRule rule, bool wide = false) {
    const fs::path folder = folder_of(GetParam());
    const Golden golden = read_golden(folder / "golden.safetensors").value();
    ExecutorOptions options = golden_options(golden);
    options.kv = kv;
    Loaded loaded = Loaded::open(folder_of(base_of(GetParam())), std::move(backend), options);
    const auto bare = check_golden(*loaded.executor, golden, rule);
    ASSERT_TRUE(bare.ok());
    EXPECT_FALSE(bare->passed()) << "the model has these logits without the adapter";
    loaded.use(folder);
    const auto result = check_golden(*loaded.executor, golden, rule);
    ASSERT_TRUE(result.ok()) << result.error().message;
    if (wide) {
      EXPECT_LE(result->distance.kl_mean(), 3e-3);
      return;
    }
    EXPECT_TRUE(result->passed()) << result->failure;
  }
};

// Products and attention in bfloat16, as AMX has them, move this one's rows by 1.7e-3 nats.
bool widely_rounded(const std::string& name, Backend& backend) {
  return name == "llama-all-r8-rslora" && backend.description().find("amx") != std::string::npos;
}

TEST_P(AdapterGolden, ByReference) { check(make_reference_backend(), DType::f32, GoldenRule::reference); }
TEST_P(AdapterGolden, OnTheCpu) {
  check(make_cpu_backend({.threads = 2, .activations = Activations::float32}).value(), DType::f32, GoldenRule::float32);
}
TEST_P(AdapterGolden, OnTheCpuFast) {
  auto backend = make_cpu_backend({.threads = 2}).value();
  const bool wide = widely_rounded(GetParam(), *backend);
  check(std::move(backend), DType::f16, GoldenRule::reduced, wide);
}
INSTANTIATE_TEST_SUITE_P(Adapters, AdapterGolden, ::testing::ValuesIn(names(false)), test::test_name);

class AdapterRefused : public ::testing::TestWithParam<std::string> {};
TEST_P(AdapterRefused, ByName) {
  const Checkpoint checkpoint = Checkpoint::open(folder_of(base_of(GetParam()))).value();
  const ModelSource source = ModelSource::open(checkpoint).value();
  auto read = read_adapter(folder_of(GetParam()), source.spec());
  ASSERT_FALSE(read.ok());
  const std::string& why = read.error().message;
  const std::string names = GetParam() == "llama-dora-refuse"         ? "DoRA"
                            : GetParam() == "llama-all-r4-saved-head" ? "modules_to_save"
                                                                      : "w_pack";
  EXPECT_NE(why.find(names), std::string::npos) << why;
}
INSTANTIATE_TEST_SUITE_P(Adapters, AdapterRefused, ::testing::ValuesIn(names(true)), test::test_name);

// ---- the change worked into the weights

std::vector<float> logits_of(Executor& executor, std::span<const Token> tokens) {
  KvCache cache(executor.layout(), executor.options().pages, 0);
  SequencePages pages = cache.open(0, {});
  const auto count = static_cast<int32_t>(tokens.size());
  EXPECT_TRUE(cache.reserve(pages, 0, count));
  const Chunk chunk{.tokens = tokens, .begin = 0, .tables = pages.tables, .wanted = count};
  const Tensor logits = executor.run({&chunk, 1});
  std::vector<float> out;
  for (int64_t r = 0; r < logits.rows; ++r) out.insert(out.end(), logits.row(r), logits.row(r) + logits.cols);
  return out;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(double{a[i]} - b[i]));
  return most;
}

// Products of the first layer, whatever they are called; without those that are refused.
bool is_product(const test::EditedTensor& tensor) {
  const bool layer = tensor.name.find(".0.") != std::string::npos;
  return layer && tensor.shape.size() == 2 && tensor.name.ends_with(".weight") &&
         tensor.name.find("norm") == std::string::npos && tensor.name.find("kv_b_proj") == std::string::npos;
}

class AdapterMerged : public ::testing::TestWithParam<std::string> {};

TEST_P(AdapterMerged, IsWhatTheAdapterGives) {
  const bool transposed = GetParam() == "gpt2";
  constexpr double kAlpha = 6;
  constexpr int64_t kRank = 3;
  test::Edited edited(GetParam());
  std::vector<Lora> loras;
  for (test::EditedTensor& tensor : edited.tensors) {
    if (!is_product(tensor)) continue;
    const int64_t outs = tensor.shape[transposed ? 1 : 0], ins = tensor.shape[transposed ? 0 : 1];
    loras.emplace_back(tensor.name.substr(0, tensor.name.size() - 7), kRank, ins, outs, loras.size() + 1);
    std::vector<float> numbers(static_cast<size_t>(outs * ins));
    format(tensor.type).to_float(reinterpret_cast<const std::byte*>(tensor.bytes.data()), numbers.data(), outs * ins);
    for (int64_t out = 0; out < outs; ++out) {
      for (int64_t in = 0; in < ins; ++in) {
        float& number = numbers[static_cast<size_t>(transposed ? in * outs + out : out * ins + in)];
        number = static_cast<float>(number + kAlpha / kRank * loras.back().change(out, in));
      }
    }
    tensor.type = DType::f32;
    tensor.bytes.assign(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float));
  }
  ASSERT_GE(loras.size(), 3u);
  Folder folder;
  test::write_peft(folder, test::peft_config(kRank, kAlpha), test::peft_tensors(loras));
  ASSERT_TRUE(edited.open().ok());

  const std::vector<Token> tokens = {5, 9, 33, 7, 7, 120, 64, 11};
  const ExecutorOptions options = {.context = 16, .rows = 16, .wanted = 16, .kv = DType::f32};
  Loaded merged = Loaded::open(edited.folder(), make_reference_backend(), options);
  Loaded plain = Loaded::open(test::golden_path(GetParam()), make_reference_backend(), options);
  const std::vector<float> wanted = logits_of(*merged.executor, tokens), before = logits_of(*plain.executor, tokens);
  ASSERT_NO_FATAL_FAILURE(plain.use(folder.path()));
  const std::vector<float> found = logits_of(*plain.executor, tokens);
  const double scale = largest_difference(wanted, std::vector<float>(wanted.size()));
  EXPECT_LT(largest_difference(wanted, found), 1e-4 * scale);
  EXPECT_GT(largest_difference(wanted, before), 1e-2 * scale);
}

INSTANTIATE_TEST_SUITE_P(Adapters, AdapterMerged,
                         ::testing::Values("llama-mha", "phi3", "falcon", "gpt2", "gpt_neox", "gemma2", "bloom",
                                           "starcoder2", "minicpm3", "lfm2"),
                         test::test_name);

// ---- bits

struct Way {
  std::string name;
  std::function<std::unique_ptr<Backend>()> backend;
  DType kv;
};

std::vector<Way> ways() {
  auto cpu = [](int threads, Activations activations) {
    return [=] { return make_cpu_backend({.threads = threads, .activations = activations}).value(); };
  };
  return {{"reference", [] { return make_reference_backend(); }, DType::f32},
          {"float32", cpu(1, Activations::float32), DType::f32},
          {"fast", cpu(3, Activations::fast), DType::f16}};
}

// Who is in a step: a prompt, and the adapter it has.
struct Seat {
  std::vector<Token> tokens;
  int adapter = -1;
  float strength = 1;
};

// Logits of the last token of each, computed together in pieces of so many tokens.
std::vector<std::vector<float>> together(Executor& executor, const std::vector<Seat>& seats, size_t piece) {
  KvCache cache(executor.layout(), executor.options().pages, 0);
  std::vector<SequencePages> pages;
  for (size_t i = 0; i < seats.size(); ++i) {
    Identity root;
    root.bytes[0] = static_cast<uint8_t>(i);
    pages.push_back(cache.open(static_cast<int64_t>(i), root));
  }
  std::vector<std::vector<float>> out(seats.size());
  for (size_t begin = 0;; begin += piece) {
    std::vector<Chunk> chunks;
    std::vector<size_t> whose;
    for (size_t i = 0; i < seats.size(); ++i) {
      const std::vector<Token>& tokens = seats[i].tokens;
      if (begin >= tokens.size()) continue;
      const size_t count = std::min(piece, tokens.size() - begin);
      EXPECT_TRUE(cache.reserve(pages[i], static_cast<int>(begin), static_cast<int>(begin + count)));
      chunks.push_back({.tokens = std::span(tokens).subspan(begin, count),
                        .begin = static_cast<int32_t>(begin),
                        .tables = pages[i].tables,
                        .wanted = begin + count == tokens.size() ? 1 : 0,
                        .adapter = seats[i].adapter,
                        .strength = seats[i].strength});
      whose.push_back(i);
    }
    if (chunks.empty()) return out;
    const Tensor logits = executor.run(chunks);
    int64_t row = 0;
    for (size_t c = 0; c < chunks.size(); ++c)
      if (chunks[c].wanted > 0) {
        out[whose[c]].assign(logits.row(row), logits.row(row) + logits.cols);
        ++row;
      }
  }
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && !a.empty() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Adapters, ManyInOneStepHaveTheBitsTheyHaveAlone) {
  for (const Way& way : ways()) {
    Loaded loaded = Loaded::open(own_folder() / "base-llama", way.backend(),
                                 {.context = 48, .rows = 96, .sequences = 8, .wanted = 8, .kv = way.kv});
    std::vector<Seat> seats;
    for (int i = 0; i < 7; ++i) {
      Seat seat;
      for (int t = 0; t < 5 + 4 * i; ++t) seat.tokens.push_back((t * 31 + i * 57 + 3) % 320);
      seats.push_back(std::move(seat));
    }
    // Before any adapter is there.
    std::vector<std::vector<float>> bare;
    for (const Seat& seat : seats) bare.push_back(together(*loaded.executor, {seat}, 99)[0]);

    std::vector<int> places;
    for (const char* name : {"llama-all-r8", "llama-patterns", "llama-embedding-lora"}) {
      const Adapter adapter = read_adapter(own_folder() / name, loaded.spec()).value();
      places.push_back(loaded.executor->load_adapter(adapter).value());
    }
    seats[0].adapter = seats[3].adapter = places[0];
    seats[1].adapter = places[1];
    seats[4].adapter = places[2];
    seats[5].adapter = places[0];
    seats[5].strength = 0.25F;
    std::vector<std::vector<float>> alone;
    for (const Seat& seat : seats) alone.push_back(together(*loaded.executor, {seat}, 99)[0]);
    EXPECT_TRUE(same_bits(alone[2], bare[2]) && same_bits(alone[6], bare[6])) << way.name;
    EXPECT_FALSE(same_bits(alone[0], bare[0])) << way.name;
    for (const size_t piece : {size_t{1}, size_t{3}, size_t{13}}) {
      const auto crowd = together(*loaded.executor, seats, piece);
      for (size_t i = 0; i < seats.size(); ++i)
        EXPECT_TRUE(same_bits(crowd[i], alone[i])) << way.name << ", sequence " << i << ", pieces of " << piece;
    }
  }
}

TEST(Adapters, HowManyThreadsThereAreShowsInNoBit) {
  std::vector<float> first;
  for (const int threads : {1, 2, 5}) {
    Loaded loaded = Loaded::open(own_folder() / "base-llama", make_cpu_backend({.threads = threads}).value(),
                                 {.context = 48, .rows = 48, .wanted = 48, .kv = DType::f16});
    ASSERT_NO_FATAL_FAILURE(loaded.use(own_folder() / "llama-all-r8"));
    std::vector<Token> tokens(40);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>(i * 7 % 320);
    const std::vector<float> found = logits_of(*loaded.executor, tokens);
    if (first.empty()) first = found;
    EXPECT_TRUE(same_bits(first, found)) << threads << " threads";
  }
}

TEST(Adapters, SeveralAsOneAreTheirSum) {
  const ExecutorOptions options = {.context = 16, .rows = 16, .wanted = 16, .kv = DType::f32};
  Loaded loaded = Loaded::open(own_folder() / "base-llama", make_reference_backend(), options);
  const Lora one("model.layers.0.self_attn.q_proj", 2, 64, 64, 1),
      other("model.layers.0.self_attn.q_proj", 3, 64, 64, 2);
  Folder a, b;
  test::write_peft(a, test::peft_config(2, 4), test::peft_tensors({one}));
  test::write_peft(b, test::peft_config(3, 3), test::peft_tensors({other}));
  const Adapter first = read_adapter(a.path(), loaded.spec()).value(),
                second = read_adapter(b.path(), loaded.spec()).value();
  const WeightedAdapter both[] = {{&first, 0.5F}, {&second, 2}};
  const Adapter sum = joined_adapter(both).value();
  ASSERT_EQ(sum.parts.size(), 1u);
  EXPECT_EQ(sum.parts[0].rank, 5);
  for (const auto& [out, in] : {std::pair<int64_t, int64_t>{0, 0}, {17, 40}, {63, 63}}) {
    const AdapterPart& part = sum.parts[0];
    double found = 0;
    for (int64_t j = 0; j < part.rank; ++j)
      found += double{part.up[static_cast<size_t>(j * 64 + out)]} * part.down[static_cast<size_t>(j * 64 + in)];
    EXPECT_NEAR(found * part.scale, 0.5 * 2 * one.change(out, in) + 2 * 1 * other.change(out, in), 1e-5);
  }
}

// ---- how numbers lie

TEST(Adapters, NumbersLieIn16BitsWhereThatLosesNothing) {
  const ExecutorOptions options = {.context = 16, .rows = 16, .wanted = 16, .kv = DType::f32};
  const auto bf16 = [](float x) { return bf16_to_f32(f32_to_bf16(x)); };
  const auto f16 = [](float x) { return f16_to_f32(f32_to_f16(x)); };
  const auto as_it_is = [](float x) { return x; };
  const auto check = [&](auto kept, DeltaNumbers wanted) {
    Lora one("model.layers.0.self_attn.q_proj", 3, 64, 64, 9);
    for (std::vector<float>* numbers : {&one.down, &one.up}) std::ranges::transform(*numbers, numbers->begin(), kept);
    Folder folder;
    test::write_peft(folder, test::peft_config(3, 3), test::peft_tensors({one}));
    Loaded loaded = Loaded::open(own_folder() / "base-llama", make_cpu_backend({.threads = 1}).value(), options);
    Adapter adapter = read_adapter(folder.path(), loaded.spec()).value();
    ASSERT_EQ(adapter.parts.size(), 1u);
    EXPECT_EQ(adapter.parts[0].numbers, wanted);
    EXPECT_EQ(adapter.bytes(), 2 * 3 * 64 * bytes_of(wanted));
    // The same logits, to the bit, as from numbers that lie whole.
    const auto logits_with = [&](const Adapter& each) {
      const int place = loaded.executor->load_adapter(each).value();
      Seat seat = {.tokens = {3, 1, 4, 1, 5, 9, 2, 6}};
      seat.adapter = place;
      return together(*loaded.executor, {seat}, 99)[0];
    };
    const std::vector<float> lying = logits_with(adapter);
    adapter.parts[0].numbers = DeltaNumbers::f32;
    EXPECT_TRUE(same_bits(logits_with(adapter), lying));
  };
  check(bf16, DeltaNumbers::bf16);
  check(f16, DeltaNumbers::f16);
  check(as_it_is, DeltaNumbers::f32);
}

// ---- memory

TEST(Adapters, AreInTheLedger) {
  Loaded loaded = Loaded::open(own_folder() / "base-llama", make_cpu_backend({.threads = 1}).value(),
                               {.context = 16, .rows = 16, .kv = DType::f16});
  const Adapter small = read_adapter(own_folder() / "llama-patterns", loaded.spec()).value();
  const Adapter large = read_adapter(own_folder() / "llama-all-r8", loaded.spec()).value();
  Backend& backend = *loaded.backend;
  const int64_t before = backend.used(Purpose::weights);
  const int first = loaded.executor->load_adapter(small).value();
  const int64_t table = backend.used(Purpose::weights) - before - small.bytes();
  EXPECT_GT(table, 0);
  const int second = loaded.executor->load_adapter(large).value();
  EXPECT_EQ(backend.used(Purpose::weights), before + table + small.bytes() + large.bytes());
  // What is given back is used again.
  loaded.executor->unload_adapter(second);
  EXPECT_EQ(loaded.executor->load_adapter(small).value(), second);
  loaded.executor->unload_adapter(first);
  loaded.executor->unload_adapter(second);
  EXPECT_EQ(loaded.executor->load_adapter(large).value(), second);
  EXPECT_EQ(backend.used(Purpose::weights), before + table + small.bytes() + large.bytes());
  int64_t used = 0;
  for (int purpose = 0; purpose < kPurposes; ++purpose) used += backend.used(static_cast<Purpose>(purpose));
  backend.set_limit(used + large.bytes() - 1);
  const auto refused = loaded.executor->load_adapter(large);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::no_memory);
  EXPECT_TRUE(loaded.executor->load_adapter(small).ok());  // at the place that was given back
}

// ---- what is refused

class Refusals : public ::testing::Test {
 protected:
  Refusals() : checkpoint_(Checkpoint::open(own_folder() / "base-llama").value()) {
    spec_ = ModelSource::open(checkpoint_).value().spec();
  }
  std::string why(const JsonObject& config, const std::vector<test::SavedTensor>& tensors) {
    Folder folder;
    test::write_peft(folder, config, tensors);
    auto read = read_adapter(folder.path(), spec_);
    return read.ok() ? "" : read.error().message;
  }
  static Lora query() { return {"model.layers.1.self_attn.q_proj", 2, 64, 64, 1}; }
  Checkpoint checkpoint_;
  ModelSpec spec_;
};

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(Refusals, SettingsThatAreNotBuilt) {
  const auto tensors = test::peft_tensors({query()});
  EXPECT_EQ(why(test::peft_config(2, 4), tensors), "");
  auto with = [&](std::string_view key, Json value) {
    JsonObject config = test::peft_config(2, 4);
    config[key] = std::move(value);
    return why(config, tensors);
  };
  EXPECT_SAYS(with("use_dora", true), "DoRA");
  EXPECT_SAYS(with("bias", "all"), "biases");
  EXPECT_SAYS(with("modules_to_save", JsonArray{"lm_head"}), "modules_to_save");
  EXPECT_SAYS(with("layer_replication", JsonArray{JsonArray{0, 2}}), "layer_replication");
  EXPECT_SAYS(with("target_parameters", JsonArray{"experts.gate"}), "target_parameters");
  EXPECT_SAYS(with("use_something_new", true), "use_something_new");
  EXPECT_SAYS(with("peft_type", "IA3"), "IA3");
  EXPECT_SAYS(with("r", 4), "rank 4, but its tensors have 2");
  EXPECT_SAYS(with("rank_pattern", JsonObject{{"q_proj", 8}}), "rank 8, but its tensors have 2");
  EXPECT_SAYS(with("rank_pattern", JsonObject{{"(q|k)_proj", 8}}), "(q|k)_proj");
  EXPECT_EQ(with("alpha_pattern", JsonObject{{"^model\\.layers\\.1\\.self_attn\\.q_proj", 8}}), "");
  EXPECT_EQ(with("use_something_new", false), "");
}

TEST_F(Refusals, TensorsOfOtherShapesAndNames) {
  const JsonObject config = test::peft_config(2, 4);
  Lora wide("model.layers.1.self_attn.q_proj", 2, 96, 64, 1), tall("model.layers.1.self_attn.q_proj", 2, 64, 80, 1);
  EXPECT_SAYS(why(config, test::peft_tensors({wide})), "has shape [2, 96]: expected [rank, 64] (blk.1.attn_q)");
  EXPECT_SAYS(why(config, test::peft_tensors({tall})), "has shape [80, 2]: expected [64, 2] (blk.1.attn_q)");
  EXPECT_SAYS(why(config, test::peft_tensors({{"model.layers.9.self_attn.q_proj", 2, 64, 64, 1}})), "layers.9");
  EXPECT_SAYS(why(test::peft_config(600, 4), test::peft_tensors({{"model.layers.1.self_attn.q_proj", 600, 64, 64, 1}})),
              "rank 600: 1 to 512");
  auto tensors = test::peft_tensors({query()});
  tensors.pop_back();
  EXPECT_SAYS(why(config, tensors), "without its second half");
  tensors = test::peft_tensors({query()});
  tensors.push_back({"base_model.model.model.layers.1.self_attn.q_proj.lora_magnitude_vector", {64}, query().down});
  tensors.back().numbers.resize(64);
  EXPECT_SAYS(why(config, tensors), "DoRA");
  tensors.back().name = "base_model.model.model.layers.1.self_attn.q_proj.lora_B.bias";
  EXPECT_SAYS(why(config, tensors), "lora_B.bias");
  EXPECT_SAYS(why(config, {}), "no LoRA tensor");
}

TEST_F(Refusals, DirectoriesThatAreNone) {
  Folder folder;
  EXPECT_SAYS(read_adapter(folder.path(), spec_).error().message, "adapter_model.safetensors");
  folder.write("adapter_model.bin", "x");
  EXPECT_SAYS(read_adapter(folder.path(), spec_).error().message, "pickle");
  folder.write("adapter_model.safetensors", test::safetensors_of(test::peft_tensors({query()})));
  EXPECT_SAYS(read_adapter(folder.path(), spec_).error().message, "adapter_config.json");
  EXPECT_SAYS(read_adapter(folder.path() / "nothing", spec_).error().message, "nothing");
}

// ---- GGUF

// Rows of queries and keys as llama.cpp's converter orders them: pairs that turn together lie side by side.
std::vector<float> neighbouring(const std::vector<float>& rows, int64_t heads, int64_t count, int64_t width) {
  const int64_t dim = count / heads, half = dim / 2;
  std::vector<float> out(rows.size());
  for (int64_t head = 0; head < heads; ++head)
    for (int64_t side = 0; side < 2; ++side)
      for (int64_t i = 0; i < half; ++i)
        std::copy_n(rows.begin() + (head * dim + side * half + i) * width, width,
                    out.begin() + (head * dim + 2 * i + side) * width);
  return out;
}

class GgufAdapters : public Refusals {
 protected:
  std::string written(std::string_view type, std::string_view architecture, std::string_view extra = "") {
    GgufWriter writer;
    EXPECT_TRUE(writer.put("general.architecture", architecture).ok());
    EXPECT_TRUE(writer.put("general.type", type).ok());
    EXPECT_TRUE(writer.put("adapter.type", "lora").ok());
    EXPECT_TRUE(writer.put("adapter.lora.alpha", 5.0F).ok());
    EXPECT_TRUE(extra.empty() || writer.put(extra, 1.0F).ok());
    for (const auto& [name, lora] : loras_) {
      EXPECT_TRUE(writer.add(name + ".weight.lora_a", DType::f32, {lora.rank, lora.ins}).ok());
      EXPECT_TRUE(writer.add(name + ".weight.lora_b", DType::f32, {lora.outs, lora.rank}).ok());
    }
    const fs::path path = folder_.path() / "adapter.gguf";
    EXPECT_TRUE(writer.begin(path).ok());
    for (const auto& [name, lora] : loras_) {
      const bool turned = name.ends_with("attn_q") || name.ends_with("attn_k");
      const int64_t heads = name.ends_with("attn_q") ? 4 : 2;
      const std::vector<float> up = turned ? neighbouring(lora.up, heads, lora.outs, lora.rank) : lora.up;
      EXPECT_TRUE(writer.write(std::as_bytes(std::span(lora.down))).ok());
      EXPECT_TRUE(writer.write(std::as_bytes(std::span(up))).ok());
    }
    EXPECT_TRUE(writer.finish().ok());
    auto read = read_adapter(path, spec_);
    if (read.ok()) found_ = std::move(*read);
    return read.ok() ? "" : read.error().message;
  }
  std::vector<std::pair<std::string, Lora>> loras_ = {
      {"blk.0.attn_q", {"model.layers.0.self_attn.q_proj", 2, 64, 64, 1}},
      {"blk.0.attn_k", {"model.layers.0.self_attn.k_proj", 2, 64, 32, 2}},
      {"blk.1.ffn_down", {"model.layers.1.mlp.down_proj", 2, 160, 64, 3}},
      {"output", {"lm_head", 2, 64, 320, 4}}};
  Folder folder_;
  std::optional<Adapter> found_;
};

TEST_F(GgufAdapters, AreWhatTheSameNumbersAreAsPeft) {
  ASSERT_EQ(written("adapter", "llama"), "");
  std::vector<Lora> loras;
  for (const auto& each : loras_) loras.push_back(each.second);
  Folder folder;
  test::write_peft(folder, test::peft_config(2, 5), test::peft_tensors(loras));
  const Adapter wanted = read_adapter(folder.path(), spec_).value();
  EXPECT_EQ(found_->content, wanted.content);
  EXPECT_EQ(found_->parts.size(), 4u);
}

TEST_F(GgufAdapters, OfOtherKindsAreRefused) {
  EXPECT_SAYS(written("model", "llama"), "general.type is 'model'");
  EXPECT_SAYS(written("adapter", "qwen3"), "'qwen3', and this one is 'llama'");
  EXPECT_SAYS(written("adapter", "llama", "adapter.alora.invocation_tokens"), "adapter.alora.invocation_tokens");
  loras_.push_back({"token_embd", {"model.embed_tokens", 2, 64, 320, 4}});
  EXPECT_SAYS(written("adapter", "llama"), "token_embd");
}

}  // namespace
}  // namespace millrace
