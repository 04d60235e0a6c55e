// Calibrating: sums are those of what products read, whatever the team and wherever it was interrupted; files go there
// and back; what does not fit is refused by name.
#include "shrink/calibrate.h"

#include "model/convert.h"
#include "shrink/rig.h"
#include "shrink/sums.h"
#include "tensor/files.h"

namespace millrace {
namespace {

using test::token_texts;

struct Subject {
  explicit Subject(const std::string& golden, int threads = 1)
      : checkpoint(Checkpoint::open(test::golden_folder() / golden).value()),
        source(ModelSource::open(checkpoint).value()),
        loaded(load_student(source, {.cpu = {.threads = threads}}).value()) {}
  Checkpoint checkpoint;
  ModelSource source;
  Loaded loaded;

  Calibration run(std::span<const ScoredText> texts, CalibrateOptions options = {.threads = 1}, Importance begun = {}) {
    auto done = calibrate(*loaded.model, source, *loaded.backend, texts, std::move(begun), options);
    EXPECT_TRUE(done.ok()) << done.error().message;
    return done.ok() ? std::move(*done) : Calibration{};
  }
};

// Adds up squares of every product on its own, row by row in double.
class Tally final : public Watcher {
 public:
  explicit Tally(const Model& model) {
    ModelWeights weights = model.weights();
    visit_slots(model.spec(), weights, [&](const Slot& slot, const Place& place) {
      if (place.matrix == nullptr) return;
      for (int64_t e = 0; e < slot.matrices(); ++e)
        names[slot.experts > 0 ? place.matrix->expert(e).data : place.matrix->data] = {slot.name, e};
    });
  }
  void product(const Weight& weight, Tensor in, Tensor) override {
    for (int64_t r = 0; r < in.rows; ++r) add(names[weight.data], weight, in.row(r));
  }
  void product_of_experts(const Weight& weight, const Routing& routing, ExpertInput input, Tensor in) override {
    for (int64_t r = 0; r < routing.rows; ++r) {
      for (int32_t k = 0; k < routing.chosen; ++k) {
        const int64_t at = r * routing.chosen + k;
        add({names[weight.data].first, routing.expert[at]}, weight,
            in.row(input == ExpertInput::rows ? r : routing.place[at]));
      }
    }
  }
  void added(Tensor, Tensor) override {}

  using Whose = std::pair<std::string, int64_t>;  // slot and expert
  std::map<const std::byte*, Whose> names;
  std::map<Whose, std::vector<double>> squares;

 private:
  void add(const Whose& whose, const Weight& weight, const float* row) {
    auto& sums = squares[whose];
    sums.resize(static_cast<size_t>(weight.cols));
    for (size_t c = 0; c < sums.size(); ++c) sums[c] += static_cast<double>(row[c]) * static_cast<double>(row[c]);
  }
};

class Calibrates : public ::testing::TestWithParam<std::string> {};

TEST_P(Calibrates, SumsAreWhatProductsRead) {
  Subject subject(GetParam());
  const auto texts = token_texts(7, 30, subject.source.spec().vocab);
  Tally tally(*subject.loaded.model);
  {
    Subject again(GetParam());
    Tally own(*again.loaded.model);
    ObservedBackend observed(*again.loaded.backend, own);
    auto executor = Executor::create(*again.loaded.model, observed, scoring_options(texts, 320)).value();
    ASSERT_TRUE(run_pass(*executor, texts, {}).ok());
    tally.squares = own.squares;
  }
  const Calibration done = subject.run(texts);
  int compared = 0;
  for (const Slot& slot : slots(subject.source.spec())) {
    const InputSquares* found = done.importance.find(file_tensor(subject.source, slot));
    if (slot.kind != SlotKind::matrix || slot.layer < 0 || found == nullptr) continue;
    for (int64_t e = 0; e < slot.matrices(); ++e) {
      const auto wanted = tally.squares.find({slot.name, e});
      for (int64_t c = 0; c < slot.cols; ++c) {
        const double sum = found->sums[static_cast<size_t>(e * slot.cols + c)];
        if (wanted == tally.squares.end()) {
          EXPECT_EQ(sum, 0);
        } else {
          EXPECT_NEAR(sum, wanted->second[static_cast<size_t>(c)], 1e-9 * (1 + sum));
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 500);
}

INSTANTIATE_TEST_SUITE_P(Models, Calibrates,
                         ::testing::Values("llama-gqa-rope3", "qwen2_moe", "phi3", "gpt2", "mamba", "minicpm3", "lfm2"),
                         test::test_name);

TEST(Calibrate, IsTheSameForAnyTeamAndWhereverItWasInterrupted) {
  const auto texts = token_texts(150, 12, 320);
  Subject one("llama-gqa-rope3", 1), two("llama-gqa-rope3", 3), three("llama-gqa-rope3", 2), four("llama-gqa-rope3", 1);
  const Importance wanted = one.run(texts).importance;
  Importance part;
  const CalibrateOptions stops = {.threads = 2, .between = [&](const Importance& so_far) {
                                    part = so_far;
                                    return false;
                                  }};
  EXPECT_FALSE(calibrate(*three.loaded.model, three.source, *three.loaded.backend, texts, {}, stops).ok());
  EXPECT_EQ(part.chunks, 64);
  const test::Folder room;
  part.of = "x";
  ASSERT_TRUE(write_importance(part, room.path() / "a.part", true).ok());
  const Importance begun = read_importance(Checkpoint::open(room.path() / "a.part").value()).value();
  const Importance rest = four.run(texts, {.threads = 1}, begun).importance;
  for (const Importance& other : {two.run(texts, {.threads = 3}).importance, rest}) {
    ASSERT_EQ(other.tensors.size(), wanted.tensors.size());
    for (size_t i = 0; i < other.tensors.size(); ++i) {
      EXPECT_EQ(other.tensors[i].counts, wanted.tensors[i].counts);
      EXPECT_EQ(other.tensors[i].sums, wanted.tensors[i].sums) << wanted.tensors[i].name;
    }
  }
}

Importance small() {
  return {.tensors = {{.name = "blk.0.ffn_up.weight", .experts = 2, .cols = 2, .sums = {1, 2, 3, 4}, .counts = {2, 0}}},
          .chunks = 3,
          .chunk_tokens = 512,
          .datasets = {"a.txt"},
          .of = ""};
}

TEST(Imatrix, GoesThereAndBack) {
  const test::Folder room;
  const Importance out = small();
  ASSERT_TRUE(write_importance(out, room.path() / "x.gguf", false).ok());
  const Checkpoint file = Checkpoint::open(room.path() / "x.gguf").value();
  EXPECT_EQ(file.find("blk.0.ffn_up.weight.in_sum2")->shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(file.find("blk.0.ffn_up.weight.counts")->shape, (std::vector<int64_t>{2, 1}));
  const Importance in = read_importance(file).value();
  ASSERT_EQ(in.tensors.size(), 1u);
  EXPECT_EQ(in.tensors[0].sums, out.tensors[0].sums);
  EXPECT_EQ(in.tensors[0].counts, out.tensors[0].counts);
  EXPECT_EQ(in.chunks, 3);
  EXPECT_EQ(in.chunk_tokens, 512);
  EXPECT_EQ(in.datasets, out.datasets);
}

std::string refusal(const Importance& importance) {
  const test::Folder room;
  EXPECT_TRUE(write_importance(importance, room.path() / "x.gguf", false).ok());
  const auto read = read_importance(Checkpoint::open(room.path() / "x.gguf").value());
  return read.ok() ? "" : read.error().message;
}

TEST(Imatrix, RefusesNumbersThatAreNone) {
  for (double bad : {std::nan(""), -1.0, static_cast<double>(INFINITY)}) {
    Importance importance = small();
    importance.tensors[0].sums[2] = bad;
    EXPECT_NE(refusal(importance).find("'blk.0.ffn_up.weight.in_sum2' has"), std::string::npos) << refusal(importance);
  }
  Importance none = small();
  none.tensors.clear();
  EXPECT_NE(refusal(none).find("says nothing"), std::string::npos);
  const auto model = read_importance(Metadata(), {});
  EXPECT_NE(model.error().message.find("not an imatrix"), std::string::npos);
}

TEST(Imatrix, OfAnotherModelIsRefused) {
  Subject subject("llama-gqa-rope3");
  const auto other = ColumnWeights::match(small(), subject.source, true);
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("another model's"), std::string::npos);
  Importance alien = small();
  alien.tensors[0].name = "blk.9.nothing.weight";
  EXPECT_NE(ColumnWeights::match(alien, subject.source, true).error().message.find("none of its 1"), std::string::npos);
}

TEST(Convert, ByImportanceKeepsAPlantedColumn) {
  Subject subject("llama-gqa-rope3");
  Importance importance = subject.run(token_texts(4, 30, 320)).importance;
  for (InputSquares& each : importance.tensors) {
    if (each.name != "blk.1.attn_q.weight") continue;
    std::fill(each.sums.begin(), each.sums.end(), 1.0);
    each.sums[37] = 5000;
  }
  const ColumnWeights weights = ColumnWeights::match(importance, subject.source, false).value();
  const test::Folder room;
  ConvertOptions options = {.type = FileType::parse("Q4_0").value(), .threads = 2};
  ASSERT_TRUE(convert(subject.source, room.path() / "plain.gguf", options).ok());
  options.importance = [&](const Slot& slot, int64_t expert) { return weights.of(slot, expert); };
  ASSERT_TRUE(convert(subject.source, room.path() / "kept.gguf", options).ok());
  const std::vector<Slot> all = slots(subject.source.spec());
  const Slot& slot = *find_slot(all, "blk.1.attn_q");
  const std::vector<float> wanted = read_matrix(subject.source, slot, 0).value();
  auto lost = [&](const char* name) {
    const Checkpoint file = Checkpoint::open(room.path() / name).value();
    const std::vector<float> got = read_matrix(ModelSource::open(file).value(), slot, 0).value();
    double sum = 0;
    for (size_t r = 0; r < 64; ++r) sum += std::pow(static_cast<double>(got[r * 64 + 37] - wanted[r * 64 + 37]), 2);
    return sum;
  };
  EXPECT_LT(lost("kept.gguf"), 0.2 * lost("plain.gguf"));
}

}  // namespace
}  // namespace millrace
