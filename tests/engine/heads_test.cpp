// Heads on the model's own streams. Made-up ones on a tiny model: answers stay the plain ones, and files that do not
// fit are refused. Trained ones on the model they were trained for: the logits and guesses a float32 implementation
// stored for the same prompts. Those files lie beside the tree; skipped by name where they are absent.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "backend/reference/reference.h"
#include "base/sanitized.h"
#include "engine/apart.h"
#include "engine/draft/head.h"
#include "engine/draft_rig.h"
#include "engine/made_up_head.h"
#include "model/heads/gguf.h"
#include "tensor/gguf_writer.h"

namespace millrace {
namespace {

const std::filesystem::path kStories = std::filesystem::path(MILLRACE_SOURCE_DIR) / "../shared/models/stories";

// Logits of every entry of a text, in one pass.
std::vector<float> logits_of(const Head& head, Backend& backend, const std::vector<Token>& ids,
                             std::vector<float> features) {
  const HeadSpec& spec = head.spec();
  const auto rows = static_cast<int32_t>(ids.size()) - 1;
  if (features.size() != static_cast<size_t>(rows * spec.feature())) return {};
  const std::vector<KvShape> shapes = {{.kv_heads = spec.attention.kv_heads,
                                        .k_dim = spec.attention.head_dim,
                                        .v_dim = spec.attention.head_dim,
                                        .form = DType::f32}};
  const CacheLayout layout = plan_layout(specs_of(shapes).value(), {.page_tokens = 128}).value();
  const Store store = Store::create(layout, shapes, 1, 1 << 24).value();
  std::vector<int32_t> positions, visible, zeros(static_cast<size_t>(rows));
  for (int32_t i = 0; i < rows; ++i) positions.push_back(i), visible.push_back(i + 1);
  const std::array<int32_t, 2> first_row = {0, rows};
  const std::array<PageTables, 1> groups = {PageTables{zeros.data(), 1}};
  const Step step = {.rows = rows,
                     .sequences = 1,
                     .wanted = rows,
                     .tokens = ids.data() + 1,
                     .positions = positions.data(),
                     .visible = visible.data(),
                     .sequence = zeros.data(),
                     .first_row = first_row.data(),
                     .wanted_rows = positions.data(),
                     .groups = groups};
  auto ops = backend.make_ops(head_workspace(head, rows, rows)).value();
  const int64_t cols = spec.feature();
  const Tensor streams = {reinterpret_cast<std::byte*>(features.data()), DType::f32, rows, cols, cols * 4};
  const HeadOutput output = run_head(*ops, head, store.view(0), step, streams, true);
  std::vector<float> logits;
  for (int32_t row = 0; row < rows; ++row)
    logits.insert(logits.end(), output.logits.row(row), output.logits.row(row) + spec.vocab);
  return logits;
}

double furthest(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(double{a[i]} - double{b[i]}));
  return worst;
}

// ---- made-up heads

class MadeUpHead : public testing::TestWithParam<const char*> {};

// Answers with the head's guesses, always four of them, or with trees of eight rows.
Outcome drafting(Tiny& tiny, const Checkpoint& file, const std::vector<Request>& all, int branches = 0) {
  const auto head = Head::load(file, *tiny.model, *tiny.backend).value();
  EngineOptions options = options_for(4, false);
  options.draft = {.make = {}, .most = branches > 0 ? 8 : 4, .steady = true, .branches = branches};
  options.draft.beside = HeadDrafter::beside(head->spec());
  options.draft.make = [&](Executor& target, Backend& backend) { return HeadDrafter::create(*head, target, backend); };
  return run_all(tiny, all, options);
}

TEST_P(MadeUpHead, ChangesNoAnswer) {
  Tiny tiny("llama-gqa-rope3");
  const Checkpoint file = MadeUp(GetParam()).open().value();
  ASSERT_TRUE(Head::is_head(file));
  const auto head = Head::load(file, *tiny.model, *tiny.backend).value();
  const std::vector<Request> all = every_kind();
  const Answers plain = run_all(tiny, all, options_for(1, false)).answers;
  for (const bool overlap : {false, true}) {
    EngineOptions options = options_for(8, overlap);
    options.executor.pages = 16;  // far too few: answers are put off and computed again
    options.draft = {.make = {}, .most = 4, .steady = true};
    options.draft.beside = HeadDrafter::beside(head->spec());
    options.draft.make = [&](Executor& target, Backend& backend) {
      return HeadDrafter::create(*head, target, backend);
    };
    const Outcome outcome = run_all(tiny, all, options);
    EXPECT_TRUE(outcome.answers == plain) << overlap;
    EXPECT_GT(outcome.metrics.drafted_tokens, 200);
  }
}

TEST_P(MadeUpHead, ThatDoesNotFitIsRefusedWithASentence) {
  Tiny tiny("llama-gqa-rope3");
  auto refused = [&](MadeUp& made, std::string_view expected) {
    const Checkpoint file = made.open().value();
    const auto head = Head::load(file, *tiny.model, *tiny.backend);
    ASSERT_FALSE(head.ok()) << expected;
    EXPECT_NE(head.error().message.find(expected), std::string::npos) << head.error().message;
  };
  const std::string kind = GetParam();
  const size_t tensors = MadeUp(kind).tensors.size();
  for (size_t i = 0; i < tensors; ++i) {
    MadeUp made(kind);
    const std::string name = made.tensors[i].name;
    const bool names_it = name == "0.0.linear.weight" || name == "fc.weight" || name == "lm_head.weight" ||
                          name.ends_with("eh_proj.weight");  // without it, it is no head at all
    const bool last = name.starts_with("2.0.linear.weight") || name.starts_with("1.0.linear.weight");  // fewer heads
    made.tensors.erase(made.tensors.begin() + static_cast<ptrdiff_t>(i));
    if (names_it) {
      EXPECT_FALSE(Head::is_head(made.open().value())) << name;
    } else if (!last) {
      refused(made, name == "d2t" ? "no d2t" : "missing");
    }
  }
  MadeUp wide(kind);
  const std::string first = kind == "medusa" ? "0.0.linear.weight"
                            : kind == "mtp"  ? "model.layers.3.eh_proj.weight"
                                             : "fc.weight";
  wide.remove(first);
  wide.add(first, kind == "medusa" ? std::vector<int64_t>{96, 96} : std::vector<int64_t>{96, 192});
  refused(wide, "made for another model");
  if (kind != "eagle3") return;
  MadeUp outside(kind), doubled(kind), taps(kind);
  outside.add_map([](int64_t i) { return i == 40 ? 400 : 2 * i; });
  refused(outside, "outside of the model's 320");
  doubled.add_map([](int64_t i) { return i == 41 ? 79 : 2 * i; });  // 120, as 40 is
  refused(doubled, "sends two tokens to 120");
  taps.config["eagle_aux_hidden_state_layer_ids"] = {1, 2, 77};
  refused(taps, "layer 77");
}

TEST_P(MadeUpHead, ChangesNoAnswerAsATree) {
  Tiny tiny("llama-gqa-rope3");
  const Checkpoint file = MadeUp(GetParam()).open().value();
  const std::vector<Request> all = every_kind();
  const Answers plain = run_all(tiny, all, options_for(1, false)).answers;
  const Outcome tree = drafting(tiny, file, all, 3);
  EXPECT_TRUE(tree.answers == plain);
  EXPECT_GT(tree.metrics.drafted_tokens, 200);
}

// Where the host does not read what was computed, logits are brought to it, and everything else stays there.
TEST_P(MadeUpHead, ChangesNoAnswerOnAMachineApart) {
  Tiny tiny("llama-gqa-rope3");
  const Checkpoint file = MadeUp(GetParam()).open().value();
  const std::vector<Request> all = every_kind();
  const Answers plain = run_all(tiny, all, options_for(1, false)).answers;
  auto here = drafting(tiny, file, all);
  tiny.model.reset();
  tiny.backend = std::make_unique<Apart>(std::move(tiny.backend));
  tiny.model = Model::load(tiny.checkpoint, *tiny.backend).value();
  const Outcome there = drafting(tiny, file, all);
  EXPECT_TRUE(here.answers == plain);
  EXPECT_TRUE(there.answers == plain);
  EXPECT_GT(there.metrics.drafted_tokens, 200);
  EXPECT_EQ(there.metrics.drafted_tokens, here.metrics.drafted_tokens);
  EXPECT_EQ(there.metrics.accepted_drafts, here.metrics.accepted_drafts);
}

INSTANTIATE_TEST_SUITE_P(Kinds, MadeUpHead, testing::Values("medusa", "mtp", "eagle3"),
                         [](const auto& kind) { return std::string(kind.param); });

class GgufKinds : public testing::TestWithParam<GgufHead> {};

// The same head as llama.cpp's converter writes it: other names, pairs of rotation side by side, ids themselves in d2t.
std::filesystem::path write_gguf(GgufHead kind, const MadeUp& made, const test::Folder& folder) {
  GgufWriter writer;
  const std::string architecture = kind == GgufHead::eagle ? "eagle3" : "llama";
  const size_t inputs = kind == GgufHead::eagle ? 128 : 64;
  EXPECT_TRUE(writer.put("general.architecture", architecture).ok());
  for (const auto& [key, value] : {std::pair("attention.head_count", 4U), std::pair("attention.head_count_kv", 2U),
                                   std::pair("attention.key_length", 16U), std::pair("feed_forward_length", 160U)})
    EXPECT_TRUE(writer.put(fmt::format("{}.{}", architecture, key), value).ok());
  EXPECT_TRUE(writer.put(architecture + ".attention.layer_norm_rms_epsilon", 1e-6f).ok());
  const std::vector<int32_t> layers = {0, 1, 2};
  EXPECT_TRUE(writer.put("eagle3.target_layers", std::span<const int32_t>(layers)).ok());
  std::vector<std::string> bytes;
  for (const test::EditedTensor& tensor : made.tensors) {
    std::string data = tensor.bytes;
    if (tensor.name.ends_with("q_proj.weight") || tensor.name.ends_with("k_proj.weight")) {
      const size_t row = inputs * sizeof(float), half = 8;
      for (size_t r = 0; r < data.size() / row; ++r) {
        const size_t from = r / 16 * 16 + r % 2 * half + r % 16 / 2;
        std::memcpy(data.data() + r * row, tensor.bytes.data() + from * row, row);
      }
    }
    for (int64_t i = 0; tensor.name == "d2t" && i < 100; ++i) {
      const int64_t value = 3 * i;
      std::memcpy(data.data() + i * 8, &value, 8);
    }
    EXPECT_TRUE(writer.add(gguf_head_name(kind, tensor.name), tensor.type, tensor.shape).ok());
    bytes.push_back(data);
  }
  const auto path = folder.path() / "head.gguf";
  EXPECT_TRUE(writer.begin(path).ok());
  for (const std::string& data : bytes) EXPECT_TRUE(writer.write(std::as_bytes(std::span(data))).ok());
  EXPECT_TRUE(writer.finish().ok());
  return path;
}

TEST_P(GgufKinds, IsTheSameHead) {
  Tiny tiny("llama-gqa-rope3");
  auto backend = make_reference_backend();
  const auto model = Model::load(tiny.checkpoint, *backend).value();
  const GgufHead kind = GetParam();
  MadeUp made(kind == GgufHead::eagle ? "eagle3" : "mtp");
  made.config["eagle_aux_hidden_state_layer_ids"] = {0, 1, 2};
  const test::Folder folder;
  const Checkpoint first = made.open().value(), second = Checkpoint::open(write_gguf(kind, made, folder)).value();
  ASSERT_TRUE(Head::is_head(second));
  ASSERT_EQ(gguf_head(second), kind);
  const auto one = Head::load(first, *model, *backend).value(), other = Head::load(second, *model, *backend).value();
  EXPECT_TRUE(std::equal(one->tokens().begin(), one->tokens().end(), other->tokens().begin(), other->tokens().end()));
  EXPECT_EQ(one->spec().taps, other->spec().taps);
  const std::vector<Token> ids = {1, 40, 7, 300, 22, 41, 9};
  std::vector<float> features;
  const auto cols = static_cast<uint32_t>(one->spec().feature());
  for (uint32_t i = 0; i < 6 * cols; ++i) features.push_back(static_cast<float>(uniform({3, 0, i, 0}) - 0.5));
  const std::vector<float> expected = logits_of(*one, *backend, ids, features);
  ASSERT_EQ(expected.size(), kind == GgufHead::eagle ? 600u : 1920u);
  EXPECT_LT(furthest(expected, logits_of(*other, *backend, ids, features)), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Kinds, GgufKinds, testing::Values(GgufHead::eagle, GgufHead::mtp),
                         [](const auto& kind) { return kind.param == GgufHead::eagle ? "eagle3" : "mtp"; });

// The layer lies behind the model's own in the model's own file.
TEST(OwnMtp, IsFoundInTheModelsFile) {
  Tiny tiny("llama-gqa-rope3");
  auto backend = make_reference_backend();
  MadeUp alone("mtp");
  test::Edited whole("llama-gqa-rope3");
  whole.config.erase("rope_parameters");
  whole.config["num_nextn_predict_layers"] = 1;
  whole.tensors.insert(whole.tensors.end(), alone.tensors.begin(), alone.tensors.end());
  const Checkpoint file = whole.open().value(), head_file = alone.open().value();
  const auto model = Model::load(file, *backend).value();
  EXPECT_EQ(model->spec().layers.size(), 3u);
  EXPECT_FALSE(Head::load_own(tiny.checkpoint, *model, *backend).ok());
  EXPECT_FALSE(Head::is_head(file));
  const auto own = Head::load_own(file, *model, *backend).value(),
             head = Head::load(head_file, *model, *backend).value();
  const std::vector<Token> ids = {1, 40, 7, 300};
  std::vector<float> features;
  for (uint32_t i = 0; i < 3 * 64; ++i) features.push_back(static_cast<float>(uniform({3, 0, i, 0}) - 0.5));
  const std::vector<float> expected = logits_of(*head, *backend, ids, features);
  ASSERT_EQ(expected.size(), 960u);
  EXPECT_EQ(logits_of(*own, *backend, ids, features), expected);
  alone.add("model.layers.3.self_attn.q_norm.weight", {16});
  const auto refused = Head::load(alone.open().value(), *model, *backend);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("q_norm"), std::string::npos) << refused.error().message;
}

// ---- trained heads

std::vector<Token> integers(const Checkpoint& golden, const std::string& name) {
  const StoredTensor* found = golden.find(name);
  if (found == nullptr || found->type != DType::i32) return {};
  std::vector<Token> values(static_cast<size_t>(found->values()));
  std::memcpy(values.data(), found->bytes.data(), found->bytes.size());
  return values;
}

struct Trained {
  Checkpoint target_file, head_file;
  std::unique_ptr<Backend> backend = make_reference_backend();
  std::unique_ptr<Model> model;
  std::unique_ptr<Head> head;
  std::unique_ptr<Executor> executor;
  KvCache cache;
  SequencePages pages;
  std::unique_ptr<Drafter> drafter;

  explicit Trained(const std::string& kind)
      : target_file(Checkpoint::open(kStories / "target").value()),
        head_file(Checkpoint::open(kStories / kind).value()),
        model(Model::load(target_file, *backend).value()),
        head(Head::load(head_file, *model, *backend).value()),
        executor(Executor::create(
                     *model, *backend,
                     {.context = 128, .rows = 128, .kv = DType::f32, .beside = HeadDrafter::beside(head->spec())})
                     .value()),
        cache(executor->layout(), executor->options().pages, 0),
        pages(cache.open(0, {})),
        drafter(HeadDrafter::create(*head, *executor, *backend).value()) {}

  // The target computes all but the last token, in two steps.
  void compute(RequestId request, std::span<const Token> ids) {
    cache.release(pages);
    pages = cache.open(0, {});
    const auto all = static_cast<int>(ids.size()) - 1, half = all / 2;
    for (const auto& [begin, end] : {std::pair(0, half), std::pair(half, all)}) {
      ASSERT_TRUE(cache.reserve(pages, begin, end));
      const Chunk chunk{.tokens = ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
                        .begin = begin,
                        .tables = pages.tables,
                        .wanted = end == all ? 1 : 0};
      executor->run({&chunk, 1});
      Observed seen{
          .request = request, .begin = begin, .streams = executor->tapped(), .tokens = ids, .tables = pages.tables};
      drafter->observe({&seen, 1});
      EXPECT_EQ(seen.entries, head->spec().kind == HeadSpec::Kind::medusa ? -1 : end);
    }
  }
  std::vector<Token> guesses(RequestId request, std::span<const Token> ids, int limit) {
    const Sampler sampler = Sampler::create({.temperature = 0}, executor->vocab()).value();
    std::vector<Token> out;
    DraftAsk ask{.request = request, .choice = 0};
    ask.tokens = ids;
    ask.limit = limit;
    ask.begin = static_cast<int>(ids.size()) - 1;
    EXPECT_TRUE(cache.reserve(pages, ask.begin, ask.begin + 1 + limit));
    ask.tables = pages.tables;
    ask.sampler = &sampler;
    ask.out = &out;
    drafter->propose({&ask, 1});
    return out;
  }
};

class TrainedHead : public testing::TestWithParam<const char*> {};

TEST_P(TrainedHead, GuessesWhatTheReferenceGuessed) {
  if (!std::filesystem::exists(kStories / GetParam() / "golden.safetensors"))
    GTEST_SKIP() << GetParam() << " is absent: this head was NOT tested";
  Trained trained(GetParam());
  const Checkpoint golden = Checkpoint::open(kStories / GetParam() / "golden.safetensors").value();
  for (RequestId prompt = 0; prompt < (test::kSanitized ? 1 : 8); ++prompt) {
    const std::vector<Token> ids = integers(golden, fmt::format("{}.ids", prompt));
    ASSERT_GT(ids.size(), 2u);
    trained.compute(prompt, ids);
    EXPECT_EQ(trained.guesses(prompt, ids, 5), integers(golden, fmt::format("{}.drafts", prompt))) << prompt;
  }
}

// Every entry of a prompt in one pass, from the streams that were stored with the logits.
TEST_P(TrainedHead, HasTheLogitsOfTheReference) {
  if (!std::filesystem::exists(kStories / GetParam() / "golden.safetensors"))
    GTEST_SKIP() << GetParam() << " is absent: this head was NOT tested";
  Trained trained(GetParam());
  const Checkpoint golden = Checkpoint::open(kStories / GetParam() / "golden.safetensors").value();
  for (const int prompt : {1, 5}) {
    const std::vector<Token> ids = integers(golden, fmt::format("{}.ids", prompt));
    const std::vector<float> features = read_floats(*golden.find(fmt::format("{}.features", prompt))).value();
    const std::vector<float> expected = read_floats(*golden.find(fmt::format("{}.logits_all_entries", prompt))).value();
    const std::vector<float> found = logits_of(*trained.head, *trained.backend, ids, features);
    ASSERT_EQ(found.size(), expected.size());
    EXPECT_LT(furthest(found, expected), 2e-3) << "prompt " << prompt;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TrainedHead, testing::Values("mtp", "eagle3"),
                         [](const auto& kind) { return std::string(kind.param); });

// The likeliest token of each Medusa head at each place of a story, as another implementation has it.
TEST(TrainedMedusa, HasTheReferencesLikeliestTokens) {
  if (!std::filesystem::exists(kStories / "golden.json"))
    GTEST_SKIP() << "the stories' golden.json is absent: Medusa heads were NOT tested";
  Trained trained("medusa");
  const Json golden = parse_json(read_file(kStories / "golden.json").value()).value();
  const Json& medusa = *find(golden, "medusa");
  std::vector<Token> ids;
  for (const Json& id : find(medusa, "ids")->get_array()) ids.push_back(static_cast<Token>(id.get_int64()));
  ids.resize(100);
  int same = 0, all = 0;
  for (size_t place = 8; place < (test::kSanitized ? 26 : 90); place += 9) {
    // The place's own stream gives the guesses after the token that follows it.
    const std::vector<Token> known(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(place) + 2);
    trained.compute(static_cast<RequestId>(place), known);
    const std::vector<Token> out = trained.guesses(static_cast<RequestId>(place), known, 4);
    ASSERT_EQ(out.size(), 4u);
    for (size_t ahead = 0; ahead < 4; ++ahead, ++all)
      same += out[ahead] == find(medusa, "top1")->get_array()[ahead].get_array()[place].get_int64();
  }
  EXPECT_EQ(same, all);
}

}  // namespace
}  // namespace millrace
