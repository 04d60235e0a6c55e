// Journals: what is written is read, a torn end is dropped, another job's is refused, and a run that goes on ends with
// the same numbers as one that was never stopped.
#include "shrink/journal.h"

#include <cmath>
#include <fstream>

#include "base/file.h"
#include "shrink/awq.h"
#include "shrink/quantise.h"
#include "shrink/rig.h"
#include "tensor/files.h"

namespace millrace {
namespace {

const JournalRecord kFirst = {.what = "layer 0", .figures = {0.5, 0.25}, .changes = {}};
const JournalRecord kSecond = {
    .what = "layer 1",
    .figures = {},
    .changes = {{.slot = "output", .expert = 0, .type = DType::f32, .bytes = std::vector<std::byte>(12)}}};

std::string file_of(const std::filesystem::path& path) { return read_file(path).value(); }

TEST(Journal, SaysWhatWasWritten) {
  const test::Folder room;
  const auto path = room.path() / "a.part";
  {
    auto journal = Journal::open(path, "job").value();
    EXPECT_FALSE(std::filesystem::exists(path));  // nothing was decided yet
    ASSERT_TRUE(journal->add(kFirst).ok());
    ASSERT_TRUE(journal->add(kSecond).ok());
  }
  auto again = Journal::open(path, "job").value();
  EXPECT_EQ(again->found(), 2u);
  const auto first = again->next("layer 0").value();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->figures, kFirst.figures);
  EXPECT_FALSE(again->next("layer 2").ok());  // the record is of another step
  const auto second = again->next("layer 1").value();
  ASSERT_TRUE(second.has_value());
  ASSERT_EQ(second->changes.size(), 1u);
  EXPECT_EQ(second->changes[0].slot, "output");
  EXPECT_EQ(second->changes[0].bytes.size(), 12u);
  EXPECT_FALSE(again->next("layer 2").value().has_value());
  const auto other = Journal::open(path, "another job");
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("remove it"), std::string::npos);
  again->remove();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Journal, ATornEndIsDropped) {
  const test::Folder room;
  const auto path = room.path() / "a.part";
  {
    auto journal = Journal::open(path, "job").value();
    ASSERT_TRUE(journal->add(kFirst).ok());
    ASSERT_TRUE(journal->add(kSecond).ok());
  }
  const std::string whole = file_of(path);
  const size_t head = read_journal(whole.substr(0, whole.size() - 1), "job").value().end;
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << whole.substr(0, cut);
    auto journal = Journal::open(path, "job").value();
    EXPECT_EQ(journal->found(), cut >= head ? 1u : 0u) << cut;
    if (cut < head) {
      ASSERT_TRUE(journal->add(kFirst).ok());
    }
    while (journal->next("layer 0").value().has_value()) continue;
    ASSERT_TRUE(journal->add(kSecond).ok());
    EXPECT_EQ(file_of(path), whole) << cut;
  }
  // Any damaged byte of the last record takes that record away.
  for (size_t at = head; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_EQ(read_journal(damaged, "job").value().records.size(), 1u) << at;
  }
}

TEST(Journal, ARunThatGoesOnEndsWithTheSameNumbers) {
  const Checkpoint checkpoint = Checkpoint::open(test::golden_folder() / "llama-gqa-rope3").value();
  const ModelSource teacher = ModelSource::open(checkpoint).value();
  const StudentOptions student = {.cpu = {.threads = 1}};
  const Loaded loaded = load_student(teacher, student).value();
  const auto texts = test::token_texts(6, 40, 300), held_out = test::token_texts(3, 40, 300, 77);
  Team team(2);
  auto judge = Judge::make(*loaded.model, *loaded.backend, held_out, 1).value();
  auto bench = HealBench::make(team, *loaded.model, *loaded.backend, texts).value();
  ModelSource rounded = teacher;
  ASSERT_TRUE(quantise_all(
                  team, rounded, [](const Slot& slot) { return slot.layer < 0 ? DType::bf16 : DType::q4_0; }, nullptr)
                  .ok());
  const auto order = heal_order(teacher.spec(), std::vector<int32_t>{0, 1, 2}, 3);
  // All steps of both kinds; stopped after `steps` of them, if that is not 0.
  auto run = [&](ModelSource& made, Journal* journal, int steps) -> Result<Comparison> {
    StepOptions options = {.student = student, .journal = journal};
    options.listener = [&](const StepReport&) { return --steps != 0; };
    made = rounded;
    TRY_VOID(quantise_by_gptq(team, teacher, made, texts, *judge, options));
    return heal_all(team, *bench, made, order, *judge, options);
  };
  ModelSource whole = rounded;
  const double kl = run(whole, nullptr, 0).value().kl_mean();
  const test::Folder room;
  const auto path = room.path() / "a.part";
  ModelSource resumed = rounded;
  for (int each : {3, 2}) {  // after three steps, then two more, one of them healing
    auto journal = Journal::open(path, "job").value();
    EXPECT_FALSE(run(resumed, journal.get(), each).ok());
  }
  auto journal = Journal::open(path, "job").value();
  EXPECT_EQ(journal->found(), 5u);
  EXPECT_EQ(run(resumed, journal.get(), 0).value().kl_mean(), kl);
  for (const Slot& slot : slots(teacher.spec())) {
    if (slot.kind != SlotKind::matrix) continue;
    EXPECT_EQ(read_matrix(whole, slot, 0).value(), read_matrix(resumed, slot, 0).value()) << slot.name;
  }
}

// Folds of AWQ, then codes by GPTQ, in a format of GGUF files and as codes with scales.
void expect_folds_go_on(const Rounding& rounding) {
  const Checkpoint checkpoint = Checkpoint::open(test::golden_folder() / "llama-gqa-rope3").value();
  const ModelSource teacher = ModelSource::open(checkpoint).value();
  const StudentOptions student = {.cpu = {.threads = 1}};
  const Loaded loaded = load_student(teacher, student).value();
  const auto texts = test::token_texts(6, 40, 300), held_out = test::token_texts(3, 40, 300, 77);
  Team team(2);
  auto judge = Judge::make(*loaded.model, *loaded.backend, held_out, 1).value();
  const FoldPlan plan = fold_plan(teacher.spec());
  int folded = 0;
  auto run = [&](Student& made, Journal* journal, int steps) -> Result<Comparison> {
    StepOptions options = {.student = student, .journal = journal};
    options.listener = [&](const StepReport& step) {
      folded += step.kept && step.what.ends_with("folded");
      return --steps != 0;
    };
    made = {.source = teacher, .codes = {}};
    TRY_VOID(round_matrices(team, teacher, {}, rounding, nullptr, nullptr, made));
    Folds folds;
    TRY_VOID(quantise_by_awq(team, teacher, plan, made, folds, rounding, nullptr, texts, *judge, options));
    options.folds = &folds;
    return quantise_by_gptq(team, teacher, made, rounding, texts, *judge, options);
  };
  Student whole = {.source = teacher, .codes = {}}, resumed = whole;
  const double kl = run(whole, nullptr, 0).value().kl_mean();
  EXPECT_GT(folded, 0);  // else nothing is shown
  const test::Folder room;
  const auto path = room.path() / "a.part";
  for (int each : {2, 2}) {  // within the folds, then within the codes
    auto journal = Journal::open(path, "job").value();
    EXPECT_FALSE(run(resumed, journal.get(), each).ok());
  }
  auto journal = Journal::open(path, "job").value();
  EXPECT_EQ(journal->found(), 4u);
  EXPECT_EQ(run(resumed, journal.get(), 0).value().kl_mean(), kl);
  for (const Slot& slot : slots(teacher.spec())) {
    if (slot.kind == SlotKind::norm) {
      EXPECT_EQ(whole.source.norm_weight(slot).value(), resumed.source.norm_weight(slot).value()) << slot.name;
    }
    if (slot.kind != SlotKind::matrix) continue;
    EXPECT_EQ(read_matrix(whole.source, slot, 0).value(), read_matrix(resumed.source, slot, 0).value()) << slot.name;
  }
  ASSERT_EQ(whole.codes.size(), resumed.codes.size());
  for (const auto& [name, codes] : whole.codes) {
    EXPECT_EQ(codes->codes, resumed.codes.at(name)->codes) << name;
    EXPECT_EQ(codes->zeros, resumed.codes.at(name)->zeros) << name;
    EXPECT_EQ(codes->scales, resumed.codes.at(name)->scales) << name;
  }
}

TEST(Journal, FoldsAndCodesGoOnToo) {
  expect_folds_go_on(FormatRounding([](const Slot& slot) { return slot.layer < 0 ? DType::bf16 : DType::q4_0; }));
  expect_folds_go_on(CodeRounding({.group = 32}, [](const Slot& slot) {
    return slot.layer >= 0 && slot.kind == SlotKind::matrix && slot.weight && slot.cols % 32 == 0;
  }));
}

TEST(Journal, FactorsThatAreNoneAreRefused) {
  const Checkpoint checkpoint = Checkpoint::open(test::golden_folder() / "llama-gqa-rope3").value();
  const ModelSource teacher = ModelSource::open(checkpoint).value();
  const StudentOptions options = {.cpu = {.threads = 1}};
  const Loaded loaded = load_student(teacher, options).value();
  const auto texts = test::token_texts(2, 20, 300);
  Team team(1);
  auto judge = Judge::make(*loaded.model, *loaded.backend, texts, 1).value();
  const FormatRounding rounding([](const Slot&) { return DType::f16; });
  for (const double factor : {0.0, -1.0, static_cast<double>(NAN), 1.0}) {  // and of the last too few
    const test::Folder room;
    auto journal = Journal::open(room.path() / "a.part", "job").value();
    ASSERT_TRUE(journal->add({.what = "layer 0 folded", .figures = {1, 0.5, factor}, .changes = {}}).ok());
    auto again = Journal::open(room.path() / "a.part", "job").value();
    Student made = {.source = teacher, .codes = {}};
    Folds folds;
    const auto done = quantise_by_awq(team, teacher, fold_plan(teacher.spec()), made, folds, rounding, nullptr, texts,
                                      *judge, {.student = options, .journal = again.get()});
    ASSERT_FALSE(done.ok());
    EXPECT_NE(done.error().message.find("the journal's layer 0 folded has"), std::string::npos) << done.error().message;
  }
}

TEST(Journal, AChangeThatDoesNotFitIsRefused) {
  const Checkpoint checkpoint = Checkpoint::open(test::golden_folder() / "llama-gqa-rope3").value();
  ModelSource source = ModelSource::open(checkpoint).value();
  EXPECT_FALSE(put_change(source, {.slot = "blk.9.attn_q", .bytes = {}}).ok());
  EXPECT_FALSE(put_change(source, {.slot = "blk.0.attn_q", .bytes = std::vector<std::byte>(4)}).ok());
  const Slot slot = slots(source.spec()).front();
  JournalRecord::Change change = change_of(source, slot, 0).value();
  EXPECT_TRUE(put_change(source, change).ok());
  change.expert = 1;
  EXPECT_FALSE(put_change(source, change).ok());
}

}  // namespace
}  // namespace millrace
