// A narrower stream: eigenvectors by what they are, folding and turning that change nothing, a stream that really is
// narrow and stays whole, files that are models again, healing, Block Influence, and what is refused.
#include "shrink/width.h"

#include "model/convert.h"
#include "shrink/eigen.h"
#include "shrink/prune.h"
#include "shrink/quantise.h"
#include "shrink/rig.h"
#include "tensor/files.h"

namespace millrace {
namespace {

struct Subject {
  explicit Subject(const std::string& golden)
      : checkpoint(Checkpoint::open(test::golden_folder() / golden).value()),
        source(ModelSource::open(checkpoint).value()) {}
  static inline const StudentOptions kOptions = {.cpu = {.threads = 1, .activations = Activations::float32}};
  Checkpoint checkpoint;
  ModelSource source;
  std::vector<ScoredText> texts = test::token_texts(6, 40, 250), held_out = test::token_texts(3, 40, 250, 77);
};

double kl_between(const ModelSource& one, const ModelSource& two, const std::vector<ScoredText>& texts) {
  const Loaded a = load_student(one, Subject::kOptions).value(), b = load_student(two, Subject::kOptions).value();
  auto judge = Judge::make(*a.model, *a.backend, texts, 1).value();
  return judge->judge(*b.model, *b.backend, {}).value().kl_mean();
}

// Some numbers of the stream are never written.
void silence(Team& team, ModelSource& source, size_t every) {
  const std::vector<Slot> all = slots(source.spec());
  for (const Slot& slot : all) {
    const bool table = slot.name == "token_embd" || slot.name == "position_embd";
    const bool writes = slot.name.ends_with("attn_output") || slot.name.ends_with("ffn_down");
    if (!table && !writes) continue;
    std::vector<float> numbers = read_matrix(source, slot, 0).value(), bias = source.bias(slot).value();
    for (size_t i = 0; i < numbers.size(); ++i) {
      const size_t place = table ? i % static_cast<size_t>(slot.cols) : i / static_cast<size_t>(slot.cols);
      if (place % every == 1) numbers[i] = 0;
    }
    for (size_t i = 1; i < bias.size(); i += every) bias[i] = 0;
    put_quantised(team, source, slot, 0, numbers, DType::f32, {});
    if (!bias.empty()) source.put_bias(slot, bias);
  }
}

TEST(Eigen, VectorsAreWhatTheyShouldBe) {
  for (int64_t n : {1, 2, 3, 7, 64, 150}) {
    const auto size = static_cast<size_t>(n);
    // Fewer rows than columns: some eigenvalues are zero, and several alike.
    const std::vector<double> a =
        test::products_of(test::related_rows(std::max<int64_t>(1, n - 3), n, 3), std::max<int64_t>(1, n - 3), n);
    Team one(1), three(3);
    const Eigen found = eigen(one, a, n).value();
    EXPECT_EQ(found.vectors, eigen(three, a, n).value().vectors);
    for (size_t i = 0; i < size; ++i) {
      for (size_t j = 0; j < size; ++j) {
        double product = 0, along = 0;
        for (size_t k = 0; k < size; ++k) {
          product += a[j * size + k] * found.vectors[i * size + k];
          along += found.vectors[i * size + k] * found.vectors[j * size + k];
        }
        EXPECT_NEAR(product, found.values[i] * found.vectors[i * size + j], 1e-10 * (1 + found.values[0]));
        EXPECT_NEAR(along, i == j ? 1 : 0, 1e-11);
      }
      if (i > 0) {
        EXPECT_LE(found.values[i], found.values[i - 1]);
      }
    }
  }
  Team team(1);
  EXPECT_FALSE(eigen(team, {1, std::nan(""), std::nan(""), 1}, 2).ok());
}

TEST(Width, FoldingAndTurningChangeNothing) {
  for (const char* golden : {"llama-gqa-rope3", "phi", "qwen3", "qwen2_moe"}) {
    Subject subject(golden);
    ASSERT_TRUE(check_narrowable(subject.source.spec()).ok()) << golden;
    Team team(2);
    ModelSource folded = subject.source;
    ASSERT_TRUE(fold_norms(folded).ok());
    EXPECT_LT(kl_between(subject.source, folded, subject.held_out), 1e-6) << golden;
    const Loaded loaded = load_student(folded, Subject::kOptions).value();
    const StreamSums sums = sum_stream(team, loaded, subject.texts, {}).value();
    Narrowing all = turned(team, folded.spec(), sums, folded.spec().width).value();
    ASSERT_TRUE(measure_kept(team, loaded, subject.texts, all, {}).ok());
    for (double share : all.kept) EXPECT_NEAR(share, 1, 1e-4) << golden;
    ModelSource other = folded;
    ASSERT_TRUE(narrow_stream(team, other, all).ok());
    EXPECT_LT(kl_between(subject.source, other, subject.held_out), 1e-5) << golden;
  }
}

TEST(Width, AStreamThatIsNarrowStaysWhole) {
  for (const char* golden : {"llama-gqa-rope3", "phi"}) {
    Subject subject(golden);
    Team team(1);
    silence(team, subject.source, 4);
    const bool mean = subject.source.spec().final_norm->kind != NormKind::rms;
    const int32_t wide = subject.source.spec().width, written = wide - wide / 4, narrow = written + (mean ? 1 : 0);
    ModelSource folded = subject.source;
    ASSERT_TRUE(fold_norms(folded).ok());
    const Loaded loaded = load_student(folded, Subject::kOptions).value();
    const StreamSums sums = sum_stream(team, loaded, subject.texts, {}).value();
    Narrowing turn = turned(team, folded.spec(), sums, narrow).value();
    ASSERT_TRUE(measure_kept(team, loaded, subject.texts, turn, {}).ok());
    ModelSource small = folded;
    ASSERT_TRUE(narrow_stream(team, small, turn).ok());
    EXPECT_EQ(small.spec().width, narrow);
    EXPECT_LT(kl_between(subject.source, small, subject.held_out), 1e-5) << golden;
    // One number less loses something: the test can fail.
    Narrowing less = turned(team, folded.spec(), sums, narrow - 8).value();
    ASSERT_TRUE(measure_kept(team, loaded, subject.texts, less, {}).ok());
    ModelSource smaller = folded;
    ASSERT_TRUE(narrow_stream(team, smaller, less).ok());
    EXPECT_GT(kl_between(subject.source, smaller, subject.held_out), 1e-4) << golden;
    if (mean) continue;
    Narrowing choice = chosen(folded, sums, narrow).value();
    for (size_t i = 0; i < choice.rows.size(); ++i) {  // none of the silent numbers stays
      if (choice.rows[i] != 0) {
        EXPECT_NE(i % static_cast<size_t>(wide) % 4, 1u);
      }
    }
    ASSERT_TRUE(measure_kept(team, loaded, subject.texts, choice, {}).ok());
    ModelSource picked = subject.source;
    ASSERT_TRUE(narrow_stream(team, picked, choice).ok());
    EXPECT_EQ(picked.spec().tied, subject.source.spec().tied);
    EXPECT_LT(kl_between(subject.source, picked, subject.held_out), 1e-5);
    const test::Folder room;
    for (const ModelSource* each : {&small, &picked}) {
      ASSERT_TRUE(convert(*each, room.path() / "a.gguf", {.type = FileType::parse("F32").value()}).ok());
      const Checkpoint file = Checkpoint::open(room.path() / "a.gguf").value();
      const ModelSource back = ModelSource::open(file).value();
      EXPECT_EQ(back.spec().width, narrow);
      EXPECT_LT(kl_between(subject.source, back, subject.held_out), 1e-5);
    }
  }
}

TEST(Width, HealingBringsItNearer) {
  Subject subject("llama-gqa-rope3");
  Team team(2);
  ModelSource folded = subject.source;
  ASSERT_TRUE(fold_norms(folded).ok());
  const Loaded loaded = load_student(folded, Subject::kOptions).value(),
               whole = load_student(subject.source, Subject::kOptions).value();
  const StreamSums sums = sum_stream(team, loaded, subject.texts, {}).value();
  Narrowing turn = turned(team, folded.spec(), sums, folded.spec().width - 16).value();
  ASSERT_TRUE(measure_kept(team, loaded, subject.texts, turn, {}).ok());
  ModelSource small = folded;
  ASSERT_TRUE(narrow_stream(team, small, turn).ok());
  auto judge = Judge::make(*whole.model, *whole.backend, subject.held_out, 1).value();
  const StepOptions options = {.student = Subject::kOptions};
  const double before = judge_source(small, *judge, options).value().kl_mean();
  auto bench = HealBench::make(team, *whole.model, *whole.backend, subject.texts).value();
  bench->narrow(turn.rows);
  const auto steps = heal_steps(small.spec(), subject.source.spec(), std::vector<int32_t>{0, 1, 2});
  ASSERT_EQ(steps.size(), 13u);  // readers and writers of two halves a layer, and the head
  EXPECT_EQ(steps[0].size(), 3u);
  EXPECT_TRUE(steps[0][0].outputs);
  EXPECT_EQ(steps[1].front().slot, "blk.0.attn_output");
  EXPECT_FALSE(steps[1].front().outputs);
  const double after = heal_all(team, *bench, small, steps, *judge, options).value().kl_mean();
  EXPECT_LT(after, before);
}

TEST(Width, RefusesWithAReason) {
  for (const auto& [golden, why] : {std::pair<const char*, const char*>{"olmo2", "norms stand between"},
                                    {"gemma2", "scaled by what follows from the width"},
                                    {"mamba", "not all attention"},
                                    {"gpt2", "have biases and the matrices behind them none"},
                                    {"bloom", "of a kind of their own"}}) {
    Subject subject(golden);
    const auto refused = check_narrowable(subject.source.spec());
    ASSERT_FALSE(refused.ok()) << golden;
    EXPECT_NE(refused.error().message.find(why), std::string::npos) << golden << ": " << refused.error().message;
  }
  Subject llama("llama-gqa-rope3");
  const int32_t wide = llama.source.spec().width;
  EXPECT_TRUE(check_width(llama.source, 32).ok());
  for (int32_t width : {0, 8, 33, wide, wide + 32}) EXPECT_FALSE(check_width(llama.source, width).ok()) << width;
}

TEST(Prune, InfluenceIsHowFarALayerTurnsTheStream) {
  Subject subject("llama-gqa-rope3");
  Team team(1);
  // A layer that adds nothing turns nothing.
  const std::vector<Slot> all = slots(subject.source.spec());
  for (const char* name : {"blk.1.attn_output", "blk.1.ffn_down"}) {
    const Slot& slot = *find_slot(all, name);
    put_quantised(team, subject.source, slot, 0, std::vector<float>(static_cast<size_t>(slot.rows * slot.cols)),
                  DType::f32, {});
  }
  const Loaded loaded = load_student(subject.source, Subject::kOptions).value();
  const std::vector<double> influence = layer_influence(loaded, subject.texts, {}).value();
  ASSERT_EQ(influence.size(), 3u);
  EXPECT_NEAR(influence[1], 0, 1e-6);
  EXPECT_GT(influence[0], 1e-3);
  EXPECT_GT(influence[2], 1e-3);
  EXPECT_EQ(kept_by_influence(influence, 1), (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(kept_by_influence({0.3, 0.1, 0.2, 0.1}, 2), (std::vector<int32_t>{0, 2}));
}

}  // namespace
}  // namespace millrace
