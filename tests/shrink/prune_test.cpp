// Pruning and healing: least squares against elimination in double, layers and columns that go, files that are models
// again, and what is refused.
#include "shrink/prune.h"

#include "model/convert.h"
#include "shrink/allocate.h"
#include "shrink/heal.h"
#include "shrink/quantise.h"
#include "shrink/rig.h"
#include "tensor/files.h"

namespace millrace {
namespace {

struct Subject {
  explicit Subject(const std::string& golden)
      : checkpoint(Checkpoint::open(test::golden_folder() / golden).value()),
        source(ModelSource::open(checkpoint).value()),
        loaded(load_student(source, kOptions).value()) {}
  static inline const StudentOptions kOptions = {.cpu = {.threads = 1, .activations = Activations::float32}};
  Checkpoint checkpoint;
  ModelSource source;
  Loaded loaded;
  std::vector<ScoredText> texts = test::token_texts(6, 40, 300), held_out = test::token_texts(3, 40, 300, 77);
};

TEST(Heal, IsLeastSquaresWithARidge) {
  Subject teacher("llama-gqa-rope3");
  ModelSource less = teacher.source;
  ASSERT_TRUE(less.keep_layers(std::vector<int32_t>{0, 2}).ok());
  const Loaded student = load_student(less, Subject::kOptions).value();
  Team team(2);
  auto bench = HealBench::make(team, *teacher.loaded.model, *teacher.loaded.backend, teacher.texts).value();
  const auto order = heal_order(less.spec(), std::vector<int32_t>{0, 2}, 3);
  ASSERT_EQ(order.size(), 4u);
  EXPECT_EQ(order[1].slot, "blk.0.ffn_down");
  EXPECT_EQ(order[1].target, "blk.1.ffn_down");  // the layer that went ended there
  EXPECT_EQ(order[3].slot, "blk.1.ffn_down");
  EXPECT_EQ(order[3].target, "blk.2.ffn_down");
  const HealSums sums = bench->measure(student, order[1], {}).value();
  EXPECT_EQ(sums.tokens, 6 * 39);
  EXPECT_GT(sums.lost, 0);
  const std::vector<float> weights = read_matrix(less, sums.slot, 0).value();
  double ridge = 0.01;
  const std::vector<float> got = healed(team, sums, weights, ridge).value();
  EXPECT_EQ(ridge, 0.01);
  const auto n = static_cast<size_t>(sums.slot.cols);
  std::vector<double> h = sums.products;
  double mean = 0;
  for (size_t i = 0; i < n; ++i) mean += h[i * n + i] / static_cast<double>(n);
  for (size_t i = 0; i < n; ++i) h[i * n + i] += 0.01 * mean;
  const std::vector<double> inverse = test::inverse_of(h, sums.slot.cols);
  double worst = 0, largest = 0;
  for (size_t r = 0; r < static_cast<size_t>(sums.slot.rows); ++r) {
    for (size_t c = 0; c < n; ++c) {
      double wanted = weights[r * n + c];
      for (size_t k = 0; k < n; ++k) wanted += sums.error[r * n + k] * inverse[k * n + c];
      worst = std::max(worst, std::abs(wanted - static_cast<double>(got[r * n + c])));
      largest = std::max(largest, std::abs(wanted));
    }
  }
  EXPECT_LT(worst, 1e-5 * largest);
  // The healed matrix brings the stream nearer on the text it was fitted to.
  ModelSource next = less;
  put_quantised(team, next, sums.slot, 0, got, DType::f32, {});
  const Loaded better = load_student(next, Subject::kOptions).value();
  EXPECT_LT(bench->measure(better, order[1], {}).value().lost, 0.9 * sums.lost);
}

TEST(Heal, RaisesTheRidgeWhereTokensAreFew) {
  Team team(1);
  HealSums sums = {.slot = {}, .products = std::vector<double>(64), .error = std::vector<double>(16), .tokens = 3};
  sums.slot.rows = 2, sums.slot.cols = 8;
  for (size_t i = 0; i < 8; ++i) sums.products[i * 9] = 1;
  double ridge = 0.01;
  ASSERT_TRUE(healed(team, sums, std::vector<float>(16), ridge).ok());
  EXPECT_EQ(ridge, 0.1);
}

TEST(Prune, AFileWithoutALayerIsAModel) {
  Subject subject("llama-gqa-rope3");
  auto judge = Judge::make(*subject.loaded.model, *subject.loaded.backend, subject.held_out, 1).value();
  const DropSearch search = choose_layers(subject.source, 1, *judge, Subject::kOptions, {}).value();
  ASSERT_EQ(search.kept.size(), 2u);
  ASSERT_EQ(search.rounds.at(0).size(), 3u);
  for (const DropTrial& trial : search.rounds[0]) {  // the one that went cost least
    const bool went = std::find(search.kept.begin(), search.kept.end(), trial.layer) == search.kept.end();
    for (const DropTrial& other : search.rounds[0]) EXPECT_TRUE(!went || trial.kl <= other.kl);
  }
  ModelSource less = subject.source;
  ASSERT_TRUE(less.keep_layers(search.kept).ok());
  const test::Folder room;
  ASSERT_TRUE(convert(less, room.path() / "a.gguf", {.type = FileType::parse("F32").value()}).ok());
  const Checkpoint file = Checkpoint::open(room.path() / "a.gguf").value();
  const ModelSource back = ModelSource::open(file).value();
  EXPECT_EQ(back.spec().layers.size(), 2u);
  const Loaded one = load_student(less, Subject::kOptions).value(), two = load_student(back, Subject::kOptions).value();
  const auto a = judge->judge(*one.model, *one.backend, {}).value(),
             b = judge->judge(*two.model, *two.backend, {}).value();
  EXPECT_NEAR(a.kl_mean(), b.kl_mean(), 1e-2 * a.kl_mean());
  // And once more out of that file, whose keys are written anew.
  ModelSource fewer = back;
  ASSERT_TRUE(fewer.keep_layers(std::vector<int32_t>{1}).ok());
  ASSERT_TRUE(convert(fewer, room.path() / "b.gguf", {.type = FileType::parse("F32").value()}).ok());
  const Checkpoint again = Checkpoint::open(room.path() / "b.gguf").value();
  EXPECT_EQ(ModelSource::open(again).value().spec().layers.size(), 1u);
}

TEST(Prune, ColumnsAndHeadsThatWriteNothingGoUnnoticed) {
  Subject subject("llama-gqa-rope3");
  ModelSource source = subject.source;
  const std::vector<Slot> all = slots(source.spec());
  Team team(1);
  // Every second pair of columns of the way down, and one key/value head's columns of attention's output, are zero.
  for (int layer = 0; layer < 3; ++layer) {
    for (const char* stem : {"ffn_down", "attn_output"}) {
      const Slot& slot = *find_slot(all, fmt::format("blk.{}.{}", layer, stem));
      std::vector<float> numbers = read_matrix(source, slot, 0).value();
      for (size_t i = 0; i < numbers.size(); ++i) {
        const size_t c = i % static_cast<size_t>(slot.cols);
        if (slot.cols == 160 ? c % 5 == 1 : c / 32 == static_cast<size_t>(layer % 2)) numbers[i] = 0;
      }
      put_quantised(team, source, slot, 0, numbers, DType::f32, {});
    }
  }
  const Loaded whole = load_student(source, Subject::kOptions).value();
  auto judge = Judge::make(*whole.model, *whole.backend, subject.held_out, 1).value();
  auto sums = InputSums::make(*whole.model, *whole.backend, team, nullptr).value();
  {
    ObservedBackend observed(*whole.backend, *sums);
    auto executor = Executor::create(*whole.model, observed, scoring_options(subject.texts, 320)).value();
    ASSERT_TRUE(run_pass(*executor, subject.texts, {}).ok());
  }
  ModelSource narrow = source;
  ASSERT_TRUE(narrow_ffn(narrow, *sums, 128).ok());
  ASSERT_TRUE(fewer_kv_heads(narrow, *sums, 1).ok());
  const Loaded small = load_student(narrow, Subject::kOptions).value();
  EXPECT_LT(judge->judge(*small.model, *small.backend, {}).value().kl_mean(), 1e-4);
  const test::Folder room;
  ASSERT_TRUE(convert(narrow, room.path() / "a.gguf", {.type = FileType::parse("F32").value()}).ok());
  const Checkpoint file = Checkpoint::open(room.path() / "a.gguf").value();
  const Loaded read = load_student(ModelSource::open(file).value(), Subject::kOptions).value();
  EXPECT_LT(judge->judge(*read.model, *read.backend, {}).value().kl_mean(), 1e-4);
}

TEST(Prune, RefusesWithAReason) {
  for (const auto& [golden, why] : {std::pair<const char*, const char*>{"gemma2", "pattern of layer numbers"},
                                    {"gemma3n_text", "input of its own"},
                                    {"falcon_h1", "cannot be healed"},
                                    {"olmo2", "norms stand between"}}) {
    Subject subject(golden);
    const std::string said = subject.source.keep_layers(std::vector<int32_t>{0}).ok()
                                 ? check_healable(subject.source.spec()).error().message
                                 : ModelSource(subject.source).keep_layers(std::vector<int32_t>{0}).error().message;
    EXPECT_NE(said.find(why), std::string::npos) << golden << ": " << said;
  }
  Subject llama("llama-gqa-rope3");
  EXPECT_FALSE(llama.source.keep_layers({}).ok());
  EXPECT_FALSE(llama.source.keep_layers(std::vector<int32_t>{2, 1}).ok());
  EXPECT_FALSE(llama.source.keep_layers(std::vector<int32_t>{3}).ok());
  auto judge = Judge::make(*llama.loaded.model, *llama.loaded.backend, llama.held_out, 1).value();
  EXPECT_FALSE(choose_layers(llama.source, 3, *judge, Subject::kOptions, {}).ok());
  EXPECT_EQ(ffn_width(llama.source.spec(), 0.75).value(), 128);  // of 160, in steps of 32
  EXPECT_FALSE(split_texts(test::token_texts(4, 10, 300)).ok());
}

TEST(Quantise, KeepsOnlyStepsThatHelp) {
  Subject subject("llama-gqa-rope3");
  Team team(2);
  auto judge = Judge::make(*subject.loaded.model, *subject.loaded.backend, subject.held_out, 1).value();
  ModelSource student = subject.source;
  const TypeOf type_of = [&](const Slot& slot) { return slot.layer < 0 ? DType::bf16 : DType::q4_0; };
  ASSERT_TRUE(quantise_all(team, student, type_of, nullptr).ok());
  StepOptions options = {.student = Subject::kOptions};
  const double before = judge_source(student, *judge, options).value().kl_mean();
  double last = before;
  options.listener = [&](const StepReport& step) {
    EXPECT_EQ(step.before, last);
    EXPECT_EQ(step.kept, step.after < step.before);
    if (step.kept) last = step.after;
    return true;
  };
  const double after =
      quantise_by_gptq(team, subject.source, student, subject.texts, *judge, options).value().kl_mean();
  EXPECT_EQ(after, last);
  EXPECT_LT(after, before);
  EXPECT_EQ(judge_source(student, *judge, options).value().kl_mean(), after);
  auto bench = HealBench::make(team, *subject.loaded.model, *subject.loaded.backend, subject.texts).value();
  const auto order = heal_order(student.spec(), std::vector<int32_t>{0, 1, 2}, 3);
  EXPECT_LE(heal_all(team, *bench, student, order, *judge, options).value().kl_mean(), after);
}

TEST(Allocate, SpendsBytesWhereTheySaveMost) {
  Allocation all = {.fixed = 10, .values = 80};
  all.tensors = {{.slot = "a", .types = {DType::q4_0, DType::q8_0}, .bytes = {10, 20}, .errors = {}, .kl = {9, 1}},
                 {.slot = "b", .types = {DType::q4_0, DType::q8_0}, .bytes = {10, 20}, .errors = {}, .kl = {3, 1}}};
  ASSERT_TRUE(allocate(all, 4.0).ok());  // 40 bytes: one step up
  EXPECT_EQ(all.types().at("a"), DType::q8_0);
  EXPECT_EQ(all.types().at("b"), DType::q4_0);
  EXPECT_EQ(all.bytes, 40);
  ASSERT_TRUE(allocate(all, 5.0).ok());
  EXPECT_EQ(all.types().at("b"), DType::q8_0);
  const auto refused = allocate(all, 2.0);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("takes 3.00"), std::string::npos) << refused.error().message;
}

TEST(Allocate, MeasuresWhatMatricesCost) {
  Subject subject("llama-gqa-rope3");
  Team team(1);
  auto judge = Judge::make(*subject.loaded.model, *subject.loaded.backend, subject.held_out, 1).value();
  const ColumnWeights none;
  Allocation all = measure_costs(team, subject.source, none, *judge, Subject::kOptions, {}).value();
  ASSERT_EQ(all.tensors.size(), 22u);  // seven a layer, and the table
  for (const TensorCost& each : all.tensors) {
    EXPECT_GT(each.kl.front(), each.kl.back()) << each.slot;
    EXPECT_LT(each.bytes.front(), each.bytes.back());
  }
  EXPECT_TRUE(check_budget(subject.source.spec(), 6).ok());
  EXPECT_FALSE(check_budget(subject.source.spec(), 4).ok());
  ASSERT_TRUE(allocate(all, 6).ok());
  EXPECT_LE(all.bits(), 6.0);
  EXPECT_GT(all.bits(), 5.5);
}

}  // namespace
}  // namespace millrace
