// What must not come out as a file: numbers that are none, texts that are too short, a disk that is full.
#include <sys/resource.h>

#include <csignal>

#include "model/convert.h"
#include "shrink/awq.h"
#include "shrink/calibrate.h"
#include "shrink/quantise.h"
#include "shrink/rig.h"
#include "tensor/files.h"

namespace millrace {
namespace {

const StudentOptions kOptions = {.cpu = {.threads = 1}};

struct Subject {
  Subject()
      : checkpoint(Checkpoint::open(test::golden_folder() / "llama-gqa-rope3").value()),
        source(ModelSource::open(checkpoint).value()),
        teacher(load_student(source, kOptions).value()),
        judge(Judge::make(*teacher.model, *teacher.backend, held_out, 1).value()) {}
  Checkpoint checkpoint;
  ModelSource source;
  Loaded teacher;
  std::vector<ScoredText> texts = test::token_texts(6, 40, 300), held_out = test::token_texts(3, 40, 300, 77);
  std::unique_ptr<Judge> judge;

  // A model with one number that is none.
  ModelSource broken() const {
    ModelSource out = source;
    const std::vector<Slot> all = slots(source.spec());
    const Slot& slot = *find_slot(all, "blk.1.ffn_up");
    std::vector<float> numbers = read_matrix(source, slot, 0).value();
    numbers[77] = NAN;
    const auto bytes = std::as_bytes(std::span(numbers));
    out.put_matrix(slot, 0, DType::f32, {bytes.begin(), bytes.end()});
    return out;
  }
};

DType plain(const Slot&) { return DType::f16; }

TEST(BadInput, WeightsThatAreNoNumbersAreNamedOrRefused) {
  Subject subject;
  const ModelSource broken = subject.broken();
  const Loaded loaded = load_student(broken, kOptions).value();
  const auto calibrated = calibrate(*loaded.model, broken, *loaded.backend, subject.texts, {}, {.threads = 1});
  ASSERT_FALSE(calibrated.ok());
  EXPECT_NE(calibrated.error().message.find("blk.1.ffn_down: what it reads is not finite"), std::string::npos)
      << calibrated.error().message;
  Team team(1);
  const StepOptions options = {.student = kOptions};
  const FormatRounding rounding(plain);
  Student student = {.source = broken, .codes = {}};
  Folds folds;
  for (const bool smooth : {false, true}) {
    const auto done =
        smooth ? quantise_by_smoothing(team, *loaded.model, *loaded.backend, broken, student, fold_plan(broken.spec()),
                                       folds, rounding, nullptr, subject.texts, *subject.judge, options)
               : quantise_by_awq(team, broken, fold_plan(broken.spec()), student, folds, rounding, nullptr,
                                 subject.texts, *subject.judge, options);
    ASSERT_FALSE(done.ok());
    EXPECT_NE(done.error().message.find("not finite"), std::string::npos) << done.error().message;
  }
}

TEST(BadInput, ATextShorterThanTheWidestInputRaisesTheRidge) {
  Subject subject;
  Team team(1);
  StepOptions options = {.student = kOptions};
  std::vector<double> ridges;
  options.listener = [&](const StepReport& step) {
    ridges.push_back(step.ridge);
    return true;
  };
  ModelSource student = subject.source;
  const TypeOf type_of = [](const Slot& slot) { return slot.layer >= 0 ? DType::q4_0 : DType::f16; };
  ASSERT_TRUE(quantise_all(team, student, type_of, nullptr).ok());
  const auto few = test::token_texts(1, 30, 300);
  ASSERT_TRUE(quantise_by_gptq(team, subject.source, student, few, *subject.judge, options).ok());
  ASSERT_FALSE(ridges.empty());
  EXPECT_GE(ridges.front(), 0.1);
}

TEST(BadInput, TextsThatLeaveNothingToHoldOutAreRefused) {
  const auto split = split_texts(test::token_texts(4, 30, 300));
  ASSERT_FALSE(split.ok());
  EXPECT_NE(split.error().message.find("at least 5"), std::string::npos);
}

// A file that outgrows its limit fails as one on a full disk does.
TEST(BadInput, AFullDiskLeavesNothingBehind) {
  Subject subject;
  const test::Folder room;
  const ConvertOptions options = {.type = FileType::parse("Q8_0").value(), .threads = 1};
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {60'000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto done = convert(subject.source, room.path() / "x.gguf", options);
  const auto again =
      calibrate(*subject.teacher.model, subject.source, *subject.teacher.backend, subject.texts, {}, {.threads = 1});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old);
  ASSERT_FALSE(done.ok());
  EXPECT_TRUE(std::filesystem::is_empty(room.path())) << "something was left behind";
  ASSERT_TRUE(again.ok());  // that writes nothing by itself
  EXPECT_TRUE(convert(subject.source, room.path() / "x.gguf", options).ok());
}

}  // namespace
}  // namespace millrace
