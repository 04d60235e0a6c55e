#include "eval/head_golden.h"

#include <algorithm>
#include <array>

#include "engine/draft/head.h"

namespace millrace {
namespace {

constexpr int kMostPrompts = 64;
constexpr int32_t kLongest = 512;

Result<HeadGolden::Prompt> read_prompt(const Checkpoint& file, int index) {
  HeadGolden::Prompt prompt;
  auto named = [&](std::string_view name) { return file.find(fmt::format("{}.{}", index, name)); };
  const StoredTensor *ids = named("ids"), *drafts = named("drafts"), *gaps = named("gaps");
  const StoredTensor *features = named("features"), *logits = named("logits_all_entries");
  TRY(prompt.ids, stored_tokens(*ids));
  if (prompt.ids.size() < 3 || prompt.ids.size() > kLongest)
    return error(Code::corrupt, "{}: prompt {} has {} tokens, of 3 to {}", file.path().string(), index,
                 prompt.ids.size(), kLongest);
  if (drafts == nullptr || gaps == nullptr || drafts->values() != gaps->values())
    return error(Code::corrupt, "{}: prompt {} needs as many gaps as drafts", file.path().string(), index);
  TRY(prompt.drafts, stored_tokens(*drafts));
  TRY(prompt.gaps, read_floats(*gaps));
  if (features == nullptr || logits == nullptr) return prompt;
  TRY(prompt.features, read_floats(*features));
  TRY(prompt.logits, read_floats(*logits));
  return prompt;
}

// A pass of a head over a whole prompt.
class WholePass {
 public:
  WholePass(const Head& head, Backend& backend) : head_(head), backend_(backend) {}
  Result<void> take(const KvForm& kv);
  Result<std::vector<float>> logits(const HeadGolden::Prompt& prompt);

 private:
  const Head& head_;
  Backend& backend_;
  std::unique_ptr<Ops> ops_;
  std::optional<Store> store_;
  std::byte* features_ = nullptr;
  float* results_ = nullptr;
  int32_t* arrays_ = nullptr;
};

Result<void> WholePass::take(const KvForm& kv) {
  const HeadSpec& spec = head_.spec();
  const std::vector<KvShape> shapes = {{.kv_heads = spec.attention.kv_heads,
                                        .k_dim = spec.attention.head_dim,
                                        .v_dim = spec.attention.head_dim,
                                        .form = kv}};
  TRY(auto specs, specs_of(shapes));
  TRY(const CacheLayout layout, plan_layout(specs, {.page_tokens = kLongest}));
  TRY(const int64_t bytes, Store::bytes_needed(layout, 1));
  TRY(std::byte * memory, backend_.allocate(Purpose::kv, bytes));
  TRY(Store store, Store::over(layout, shapes, 1, {memory, static_cast<size_t>(bytes)}));
  store_ = std::move(store);
  TRY(features_, backend_.allocate(Purpose::workspace, kLongest * spec.feature() * 4));
  TRY(std::byte * arrays, backend_.allocate(Purpose::staging, (5 * kLongest + 16) * 4));
  arrays_ = reinterpret_cast<int32_t*>(arrays);
  TRY(std::byte * results, backend_.allocate_results(int64_t{kLongest} * spec.vocab * 4));
  results_ = reinterpret_cast<float*>(results);
  TRY(ops_, backend_.make_ops(head_workspace(head_, kLongest, kLongest)));
  return {};
}

Result<std::vector<float>> WholePass::logits(const HeadGolden::Prompt& prompt) {
  const HeadSpec& spec = head_.spec();
  const auto rows = static_cast<int32_t>(prompt.ids.size()) - 1;
  if (prompt.features.size() != static_cast<size_t>(rows * spec.feature()) ||
      prompt.logits.size() != static_cast<size_t>(int64_t{rows} * spec.vocab))
    return error(Code::invalid,
                 "{} numbers of streams and {} logits stored for {} entries of a head that has {} and {}",
                 prompt.features.size(), prompt.logits.size(), rows, spec.feature(), spec.vocab);
  int32_t *tokens = arrays_, *positions = tokens + kLongest, *visible = positions + kLongest,
          *zeros = visible + kLongest, *first_row = zeros + kLongest;
  for (int32_t i = 0; i < rows; ++i) {
    tokens[i] = prompt.ids[static_cast<size_t>(i) + 1];
    positions[i] = i;
    visible[i] = i + 1;
  }
  first_row[1] = rows;
  const std::array<PageTables, 1> groups = {PageTables{zeros, 1}};
  const Step step = {.rows = rows,
                     .sequences = 1,
                     .wanted = rows,
                     .tokens = tokens,
                     .positions = positions,
                     .visible = visible,
                     .sequence = zeros,
                     .first_row = first_row,
                     .wanted_rows = positions,
                     .groups = groups};
  backend_.copy(features_, reinterpret_cast<const std::byte*>(prompt.features.data()),
                static_cast<int64_t>(prompt.features.size()) * 4);
  const Tensor streams = {features_, DType::f32, rows, spec.feature(), spec.feature() * 4};
  const HeadOutput output = run_head(*ops_, head_, store_->view(0), step, streams, true);
  if (std::string failure = ops_->fetch(output.logits, results_, nullptr); !failure.empty())
    return error(Code::internal, "{}", failure);
  return std::vector<float>(results_, results_ + int64_t{rows} * spec.vocab);
}

Result<void> compare_logits(const Head& head, Backend& backend, const KvForm& kv, const HeadGolden& golden,
                            GoldenResult& result) {
  WholePass pass(head, backend);
  TRY_VOID(pass.take(kv));
  const auto vocab = static_cast<size_t>(head.spec().vocab);
  for (const HeadGolden::Prompt& prompt : golden.prompts) {
    if (prompt.features.empty()) continue;
    TRY(const std::vector<float> found, pass.logits(prompt));
    for (size_t at = 0; at < found.size(); at += vocab)
      result.distance.add(std::span(prompt.logits).subspan(at, vocab), std::span(found).subspan(at, vocab));
  }
  return {};
}

// What the drafter guesses after a prompt that the target has computed, all but its last token.
std::vector<Token> guesses_after(Executor& executor, Drafter& drafter, RequestId request,
                                 const HeadGolden::Prompt& prompt) {
  KvCache cache(executor.layout(), executor.options().pages, 0);
  SequencePages pages = cache.open(0, {});
  const auto count = static_cast<int>(prompt.ids.size()) - 1;
  const auto limit = static_cast<int>(std::min<size_t>(prompt.drafts.size(), kMostDrafts));
  CHECK(cache.reserve(pages, 0, count + 1 + limit), "the executor has pages for its context");
  const Chunk chunk{.tokens = std::span(prompt.ids).first(static_cast<size_t>(count)), .tables = pages.tables};
  executor.run({&chunk, 1});
  Observed seen{.request = request, .streams = executor.tapped(), .tokens = prompt.ids, .tables = pages.tables};
  drafter.observe({&seen, 1});
  const Sampler sampler = Sampler::create({.temperature = 0}, executor.vocab()).value();
  std::vector<Token> out;
  DraftAsk ask{.request = request};
  ask.tokens = prompt.ids;
  ask.limit = limit;
  ask.begin = count;
  ask.tables = pages.tables;
  ask.sampler = &sampler;
  ask.out = &out;
  drafter.propose({&ask, 1});
  drafter.forget(request);
  cache.release(pages);
  return out;
}

}  // namespace

bool is_head_golden(const std::filesystem::path& path) {
  auto file = Checkpoint::open(path);
  return file.ok() && file->find("0.ids") != nullptr;
}

Result<HeadGolden> read_head_golden(const std::filesystem::path& path) {
  TRY(const Checkpoint file, Checkpoint::open(path));
  HeadGolden golden;
  for (int i = 0; i < kMostPrompts && file.find(fmt::format("{}.ids", i)) != nullptr; ++i) {
    TRY(HeadGolden::Prompt prompt, read_prompt(file, i));
    golden.prompts.push_back(std::move(prompt));
  }
  if (std::all_of(golden.prompts.begin(), golden.prompts.end(), [](const auto& one) { return one.features.empty(); }))
    return error(Code::corrupt, "{}: has no N.features with N.logits_all_entries", path.string());
  return golden;
}

Result<GoldenResult> check_head_golden(const Head& head, Backend& backend, const KvForm& kv, const HeadGolden& golden,
                                       GoldenRule rule) {
  if (head.spec().kind == HeadSpec::Kind::medusa)
    return error(Code::unsupported, "golden logits are of heads that have a layer (MTP, EAGLE-3)");
  for (const HeadGolden::Prompt& prompt : golden.prompts) {
    for (const Token token : prompt.ids) {
      if (token < 0 || token >= head.target().spec().vocab)
        return error(Code::corrupt, "token {} of {}", token, head.target().spec().vocab);
    }
  }
  GoldenResult result;
  TRY_VOID(compare_logits(head, backend, kv, golden, result));
  ExecutorOptions options{.context = kLongest, .rows = kLongest, .kv = kv, .beside = HeadDrafter::beside(head.spec())};
  TRY(auto executor, Executor::create(head.target(), backend, options));
  TRY(auto drafter, HeadDrafter::create(head, *executor, backend));
  bool wrong_token = false;
  for (size_t i = 0; i < golden.prompts.size(); ++i) {
    const HeadGolden::Prompt& prompt = golden.prompts[i];
    const std::vector<Token> found = guesses_after(*executor, *drafter, static_cast<RequestId>(i), prompt);
    for (size_t at = 0; at < prompt.drafts.size(); ++at) {
      ++result.greedy;
      if (at < found.size() && found[at] == prompt.drafts[at]) {
        ++result.equal;
        continue;
      }
      if (result.first_difference < 0) {
        result.first_difference = result.greedy - 1;
        result.gap_there = prompt.gaps[at];
      }
      wrong_token |= prompt.gaps[at] > greedy_gap(rule);
      break;
    }
  }
  result.kl_median = result.distance.kl_mean();
  result.failure = golden_failure(result, rule, wrong_token);
  return result;
}

}  // namespace millrace
