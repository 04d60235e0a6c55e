// Folds change nothing a model computes, in every architecture there is; factors are those of the formula; AWQ and
// SmoothQuant undo what was planted, alike for any team.
#include "shrink/folds.h"

#include "engine/executor.h"
#include "shrink/awq.h"
#include "shrink/rig.h"
#include "shrink/rounded_inputs.h"

namespace millrace {
namespace {

const StudentOptions kOptions = {.cpu = {.threads = 1, .activations = Activations::float32}};

std::vector<std::vector<float>> logits_of(const ModelSource& source, std::span<const ScoredText> texts) {
  const Loaded loaded = load_student(source, kOptions).value();
  auto executor = Executor::create(*loaded.model, *loaded.backend, scoring_options(texts, source.spec().vocab)).value();
  TextPass pass(*executor, texts);
  std::vector<std::vector<float>> out;
  while (!pass.done()) {
    const Tensor logits = pass.step();
    for (int64_t r = 0; r < static_cast<int64_t>(pass.rows().size()); ++r)
      out.emplace_back(logits.row(r), logits.row(r) + logits.cols);
  }
  return out;
}

// Rows whose logits differ by more than `share` of their largest.
int rows_that_differ(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b, double share) {
  int differ = 0;
  for (size_t r = 0; r < a.size(); ++r) {
    double most = 0, worst = 0;
    for (size_t i = 0; i < a[r].size(); ++i) {
      most = std::max(most, std::abs(static_cast<double>(a[r][i])));
      worst = std::max(worst, std::abs(static_cast<double>(a[r][i]) - static_cast<double>(b[r][i])));
    }
    differ += !(worst <= share * most);
  }
  return differ;
}

// Powers of two, which round nothing: what differs then is wrong.
std::vector<float> random_factors(int64_t size, uint32_t seed) {
  std::vector<float> out;
  for (int64_t i = 0; i < size; ++i)
    out.push_back(static_cast<float>(std::exp2(std::round(4 * test::draw(31, seed, static_cast<uint32_t>(i)) - 2))));
  return out;
}

Folds random_folds(const FoldPlan& plan) {
  Folds folds;
  uint32_t seed = 0;
  for (const FoldGroup& group : plan.groups) {
    for (int64_t e = 0; e < std::max(1, group.giver.experts); ++e)
      folds.set(group, e, random_factors(group.size, ++seed));
  }
  return folds;
}

class FoldsOf : public ::testing::TestWithParam<std::string> {};

TEST_P(FoldsOf, ChangeNothing) {
  const Checkpoint checkpoint = Checkpoint::open(test::golden_path(GetParam())).value();
  const ModelSource source = ModelSource::open(checkpoint).value();
  if (!check_runnable(source.spec()).ok() || !source.spec().head) GTEST_SKIP() << "is not run here";
  const FoldPlan plan = fold_plan(source.spec());
  EXPECT_FALSE(plan.groups.empty() && plan.left_out.empty());
  ModelSource folded = source;
  ASSERT_TRUE(random_folds(plan)
                  .put_beside(
                      source, [](const Slot&) { return false; }, folded)
                  .ok());
  const auto texts = test::token_texts(2, 20, source.spec().vocab);
  const auto before = logits_of(source, texts), after = logits_of(folded, texts);
  EXPECT_EQ(rows_that_differ(before, after, 1e-3), 0) << plan.groups.size() << " groups";
}

INSTANTIATE_TEST_SUITE_P(Models, FoldsOf, ::testing::ValuesIn(test::golden_names()), test::test_name);

TEST(Folds, OneSideAloneIsSeen) {
  const Checkpoint checkpoint = Checkpoint::open(test::golden_folder() / "llama-gqa-rope3").value();
  const ModelSource source = ModelSource::open(checkpoint).value();
  const FoldPlan plan = fold_plan(source.spec());
  ASSERT_EQ(plan.groups.size(), 4 * source.spec().layers.size());
  ModelSource half = source;
  std::vector<float> weight = source.norm_weight(plan.groups[0].giver).value();
  for (float& each : weight) each *= 2;
  half.put_numbers(plan.groups[0].giver, std::move(weight));
  const auto texts = test::token_texts(2, 20, 300);
  EXPECT_GT(rows_that_differ(logits_of(source, texts), logits_of(half, texts), 2e-3), 20);
}

TEST(Folds, SayWhatTheyLeaveOut) {
  auto left_out = [](const char* name) {
    const Checkpoint checkpoint = Checkpoint::open(test::golden_folder() / name).value();
    std::string all;
    for (const std::string& each : fold_plan(ModelSource::open(checkpoint).value().spec()).left_out) all += each + "\n";
    return all;
  };
  EXPECT_EQ(left_out("llama-gqa-rope3"), "");
  EXPECT_NE(left_out("olmo2").find("no norm before them"), std::string::npos);
  EXPECT_NE(left_out("gpt2").find("an activation that factors do not pass through"), std::string::npos);
  EXPECT_NE(left_out("bloom").find("way down"), std::string::npos);
}

TEST(Awq, FactorsAreThoseOfTheFormula) {
  const std::vector<double> x = {0.5, 2, 0, 8, 0.01}, w = {0.2, 0.4, 0.3, 0.9, 0.6};
  for (double alpha : {0.0, 0.3, 1.0}) {
    for (const bool both : {false, true}) {
      const std::vector<float> got = fold_factors(x, both ? w : std::vector<double>(), alpha);
      std::vector<double> wanted;
      double most = 0, least = 1e30;
      for (size_t j = 0; j < x.size(); ++j) {
        wanted.push_back(std::pow(x[j], alpha) / (both ? std::pow(w[j], 1 - alpha) : 1));
        if (x[j] > 0) most = std::max(most, wanted[j]), least = std::min(least, wanted[j]);
      }
      for (size_t j = 0; j < x.size(); ++j)
        EXPECT_NEAR(static_cast<double>(got[j]), x[j] > 0 ? wanted[j] / std::sqrt(most * least) : 1.0,
                    1e-6 * std::abs(wanted[j] / std::sqrt(most * least)) + 1e-7);
    }
  }
  const std::vector<float> rows = {1, -2, 4, 0.5f, 0, 0, -3, 6};  // two rows, groups of two
  EXPECT_EQ(shares_of_groups(rows, 2, 4, 2), (std::vector<double>{0.25, 0.5, 0.75, 0.5625}));
}

// A model whose norms make some columns large and whose matrices make them small again.
struct Planted {
  Planted()
      : checkpoint(Checkpoint::open(test::golden_folder() / "llama-gqa-rope3").value()),
        source(ModelSource::open(checkpoint).value()) {
    Folds folds;
    const FoldPlan all = fold_plan(source.spec());
    for (const FoldGroup& group : all.groups) {
      if (!group.by_norm()) continue;
      std::vector<float> factors(static_cast<size_t>(group.size), 1.0f);
      for (size_t j = 3; j < factors.size(); j += 11) factors[j] = 0.02f;
      folds.set(group, 0, factors);
    }
    const ModelSource plain = source;
    EXPECT_TRUE(folds
                    .put_beside(
                        plain, [](const Slot&) { return false; }, source)
                    .ok());
    teacher = load_student(source, kOptions).value();
    judge = Judge::make(*teacher.model, *teacher.backend, held_out, 1).value();
  }
  Checkpoint checkpoint;
  ModelSource source;
  Loaded teacher;
  std::vector<ScoredText> texts = test::token_texts(6, 40, 300), held_out = test::token_texts(3, 40, 300, 77);
  std::unique_ptr<Judge> judge;
};

DType four_bits(const Slot& slot) { return slot.layer >= 0 && slot.cols % 32 == 0 ? DType::q4_0 : DType::f16; }

std::vector<std::byte> bytes_of_student(const ModelSource& source) {
  std::vector<std::byte> out, room;
  auto add = [&](std::span<const std::byte> bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); };
  for (const Slot& slot : slots(source.spec())) {
    if (slot.kind == SlotKind::matrix) {
      for (int64_t e = 0; e < slot.matrices(); ++e) add(source.matrix(slot, e, room).value().bytes);
    } else if (slot.kind == SlotKind::norm) {
      const std::vector<float> weight = source.norm_weight(slot).value();
      add(std::as_bytes(std::span(weight)));
    }
  }
  return out;
}

TEST(Awq, UndoesWhatWasPlantedAlikeForAnyTeam) {
  std::vector<std::byte> first;
  for (const int threads : {1, 2, 3}) {
    Planted planted;
    Team team(threads);
    StepOptions options = {.student = {.cpu = {.threads = threads}}};
    int kept = 0;
    options.listener = [&](const StepReport& step) {
      kept += step.kept;
      EXPECT_EQ(step.kept, step.after < step.before);
      return true;
    };
    const FormatRounding rounding(four_bits);
    Student student = {.source = planted.source, .codes = {}};
    ASSERT_TRUE(round_matrices(team, planted.source, {}, rounding, nullptr, nullptr, student).ok());
    const double before = try_out(student, *planted.judge, options).value().judged.kl_mean();
    Folds folds;
    const double after = quantise_by_awq(team, planted.source, fold_plan(planted.source.spec()), student, folds,
                                         rounding, nullptr, planted.texts, *planted.judge, options)
                             .value()
                             .kl_mean();
    EXPECT_GT(kept, 0);
    EXPECT_LT(after, 0.6 * before);
    EXPECT_EQ(try_out(student, *planted.judge, options).value().judged.kl_mean(), after);
    if (threads == 1) first = bytes_of_student(student.source);
    EXPECT_TRUE(bytes_of_student(student.source) == first) << threads;
  }
}

TEST(SmoothQuant, IsKeptWhereInputsHaveOutliers) {
  Planted planted;
  Team team(2);
  StepOptions options = {.student = kOptions, .rounded_inputs = true};
  const FormatRounding rounding([](const Slot& slot) { return slot.layer >= 0 ? DType::q8_0 : DType::f16; });
  Student student = {.source = planted.source, .codes = {}};
  ASSERT_TRUE(round_matrices(team, planted.source, {}, rounding, nullptr, nullptr, student).ok());
  const double before = try_out(student, *planted.judge, options).value().judged.kl_mean();
  Folds folds;
  const double after = quantise_by_smoothing(team, *planted.teacher.model, *planted.teacher.backend, planted.source,
                                             student, fold_plan(planted.source.spec()), folds, rounding, nullptr,
                                             planted.texts, *planted.judge, options)
                           .value()
                           .kl_mean();
  EXPECT_FALSE(folds.empty());
  EXPECT_LT(after, 0.5 * before);
}

TEST(SmoothQuant, InputsAreRoundedByTheLargestOfEachToken) {
  const std::vector<float> in = {1.27f, -0.5f, 0.004f, 0};
  std::vector<float> out(4);
  round_to_8_bits(in.data(), out.data(), 4);
  EXPECT_FLOAT_EQ(out[0], 1.27f);
  EXPECT_FLOAT_EQ(out[1], -0.5f);
  EXPECT_EQ(out[2], 0);
  const std::vector<float> none(4);
  round_to_8_bits(none.data(), out.data(), 4);
  EXPECT_EQ(out, none);
}

TEST(Awq, FoldsExpertsOneByOne) {
  const Checkpoint checkpoint = Checkpoint::open(test::golden_folder() / "qwen2_moe").value();
  const ModelSource source = ModelSource::open(checkpoint).value();
  const Loaded teacher = load_student(source, kOptions).value();
  const auto texts = test::token_texts(6, 40, 300), held_out = test::token_texts(3, 40, 300, 77);
  auto judge = Judge::make(*teacher.model, *teacher.backend, held_out, 1).value();
  Team team(2);
  const StepOptions options = {.student = kOptions};
  const FormatRounding rounding(four_bits);
  Student student = {.source = source, .codes = {}};
  ASSERT_TRUE(round_matrices(team, source, {}, rounding, nullptr, nullptr, student).ok());
  const double before = try_out(student, *judge, options).value().judged.kl_mean();
  Folds folds;
  const auto done = quantise_by_awq(team, source, fold_plan(source.spec()), student, folds, rounding, nullptr, texts,
                                    *judge, options);
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_LE(done->kl_mean(), before);
  if (folds.empty()) return;
  bool experts = false;
  for (const Slot& slot : slots(source.spec())) experts |= slot.experts > 0 && folds.changes(slot);
  EXPECT_TRUE(experts);
}

}  // namespace
}  // namespace millrace
