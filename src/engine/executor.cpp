#include "engine/executor.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <numeric>
#include <string_view>
#include <utility>

#include "backend/ranks/ranks.h"
#include "backend/ranks/share.h"
#include "base/check.h"
#include "base/checked.h"
#include "base/human.h"
#include "engine/draft/branches.h"
#include "engine/draft/tree.h"
#include "engine/ranks.h"
#include "model/adapted_ops.h"

namespace millrace {
namespace {

constexpr int64_t kAlignment = 64;
// A machine apart does few rows of each text soonest as sequences of one row each: attention is spread over all of it,
// and steps of single rows are recorded. So many in all; beyond, keys had better be read once for all rows of a text.
constexpr int32_t kMostAlone = 32;
constexpr size_t kMostOfText = 16;  // as many as backends look back for (backend/cuda/ops.h)

int64_t array_bytes(int64_t count) {
  return (count * static_cast<int64_t>(sizeof(int32_t)) + kAlignment - 1) & -kAlignment;
}

// Entries a page table of one sequence may have.
int32_t table_stride(const CacheGroup& group, int32_t context) { return std::max(1, group.pages_for(context)); }

// Sequences of a step: chunks, and rows that are sequences of their own.
int64_t sequences_of(const ExecutorOptions& options, const Backend& backend) {
  return std::max(int64_t{options.sequences} * (1 + options.branches),
                  int64_t{backend.apart() ? std::min(kMostAlone, options.rows) : 1});
}

int64_t arrays_bytes(const ExecutorOptions& options, const CacheLayout& layout, const Backend& backend) {
  const int64_t chunks = sequences_of(options, backend);
  int64_t bytes = 4 * array_bytes(options.rows) + array_bytes(chunks + 1) + array_bytes(options.wanted);
  for (const CacheGroup& group : layout.groups) bytes += array_bytes(chunks * table_stride(group, options.context));
  return bytes;
}

// Rows that can be brought in part. MILLRACE_SAMPLING=host: none, for comparison.
int64_t shortlist_rows(const ExecutorOptions& options, const ModelSpec& spec) {
  const char* where = std::getenv("MILLRACE_SAMPLING");
  if (spec.vocab > kShortlistCols || (where != nullptr && std::string_view(where) == "host")) return 0;
  return std::min(options.wanted, kShortlistRows);
}

int64_t logits_bytes(const ExecutorOptions& options, const ModelSpec& spec) {
  const int64_t bytes = int64_t{options.wanted} * spec.vocab * static_cast<int64_t>(sizeof(float));
  return (bytes + kAlignment - 1) & -kAlignment;
}

int64_t results_bytes(const ExecutorOptions& options, const ModelSpec& spec) {
  return logits_bytes(options, spec) + ShortlistBatch::bytes(shortlist_rows(options, spec));
}

// The arrays of a step, and logits on the host where they are computed elsewhere.
int64_t staging_bytes(const ModelSpec& spec, const ExecutorOptions& options, const CacheLayout& layout,
                      const Backend& backend) {
  return backend.staging_bytes(arrays_bytes(options, layout, backend)) +
         (backend.apart() ? results_bytes(options, spec) : 0);
}

Result<ExecutorOptions> settled(const ModelSpec& spec, ExecutorOptions options) {
  if (options.context == 0) options.context = spec.context;
  if (options.context < 1 || options.rows < 1 || options.sequences < 1 || options.wanted < 0 || options.pages < 0) {
    return error(Code::invalid, "context {}, rows {} and sequences {} must each be at least 1", options.context,
                 options.rows, options.sequences);
  }
  if (spec.positions > 0 && options.context > spec.positions) {
    return error(Code::invalid,
                 "a context of {} tokens, but the model knows {} positions only; ask for at most that many",
                 options.context, spec.positions);
  }
  options.rows = std::min(
      options.rows, static_cast<int32_t>(std::min<int64_t>(int64_t{options.context} * options.sequences, 1 << 20)));
  options.sequences = std::min(options.sequences, options.rows);
  if (options.wanted == 0) options.wanted = options.sequences;
  options.wanted = std::min(options.wanted, options.rows);
  return options;
}

// Whether it writes text, token after token.
Result<void> check_writes(const ModelSpec& spec, const ExecutorOptions& options) {
  if (!spec.head) {
    return error(Code::unsupported, "{} is an encoder: it turns texts into vectors or scores; use `millrace embed`",
                 spec.architecture);
  }
  if (!sees_ahead(spec) || options.sees_ahead) return {};
  return error(Code::unsupported,
               "its attention is not causal: tokens see those after them. It writes by filling masks (`run`, `chat`, "
               "`serve`) if its files name a mask token (mask_token_id is {}), and gives vectors (`embed`)",
               spec.fill.mask);
}

Result<void> plan_branches(const Backend& backend, Executor::Plan& plan) {
  const ExecutorOptions& o = plan.options;
  if (o.branches == 0) return {};
  if (o.branches < 0 || o.branches > kMostBranches || o.branch_tokens < 2 || o.branch_tokens > o.context)
    return error(Code::invalid, "{} branches of {} tokens: at most {}, of 2 tokens or more", o.branches,
                 o.branch_tokens, kMostBranches);
  if (!Branches::fits(plan.layout))
    return error(Code::unsupported,
                 "this model keeps a state, of which several ways to go on would need one each: guess without "
                 "--draft-tree");
  if (comm_of(backend) != nullptr)
    return error(Code::unsupported, "several ways to go on are tried on one rank so far: guess without --draft-tree");
  plan.spare_pages = o.sequences * o.branches * Branches::pages_for(plan.layout, o.branch_tokens);
  return {};
}

}  // namespace

void BesideLayers::add(const BesideLayers& more) {
  layers.insert(layers.end(), more.layers.begin(), more.layers.end());
  look_back = look_back || more.look_back;
}

Result<void> check_beside(const BesideLayers& planned, int first, const BesideLayers& wanted) {
  for (size_t i = 0; i < wanted.layers.size(); ++i) {
    const size_t at = static_cast<size_t>(first) + i;
    const KvShape there = at < planned.layers.size() ? planned.layers[at] : KvShape{}, own = wanted.layers[i];
    if (own.kv_heads == there.kv_heads && own.k_dim == there.k_dim && own.v_dim == there.v_dim &&
        own.window == there.window && own.kept == there.kept)
      continue;
    return error(Code::invalid,
                 "the cache was planned for {} key heads of {} beside the model's, whoever guesses has {} of {}",
                 there.kv_heads, there.k_dim, own.kv_heads, own.k_dim);
  }
  return {};
}

void suit_requests(const ModelSpec& spec, ExecutorOptions& options) {
  if (!fills_masks(spec) || spec.fill.mask < 0 || spec.fill.mask >= spec.vocab) return;
  const int32_t longest = options.context > 0 ? options.context : spec.context;
  options.sees_ahead = true;
  options.rows = std::max(options.rows, longest);
  options.wanted = options.rows;
}

Executor::Executor(const Model& model, Backend& backend, Plan plan)
    : model_(model),
      backend_(backend),
      plan_(std::move(plan)),
      apart_(backend.apart()),
      adapters_(std::make_unique<AdapterSet>(model, backend, plan_.options.rows)) {}

Executor::~Executor() = default;

Result<int64_t> Executor::staging_bytes(const ModelSpec& spec, const CacheLayout& layout,
                                        const ExecutorOptions& options, const Backend& backend) {
  TRY(const ExecutorOptions all, settled(spec, options));
  return millrace::staging_bytes(spec, all, layout, backend);
}

Result<Executor::Plan> Executor::plan(const Model& model, const Backend& backend, const ExecutorOptions& options) {
  Plan plan;
  TRY_VOID(check_writes(model.spec(), options));
  TRY(plan.options, settled(model.spec(), options));
  if (backend.apart() && (plan.options.kv.k == DType::f32 || plan.options.kv.v == DType::f32)) {
    return error(Code::unsupported, "{} keeps keys and values in 16 bits or fewer; choose f16, bf16, q8, fp8 or q4",
                 backend.description());
  }
  plan.shapes = kv_shapes(model.spec(), plan.options.kv);
  const std::optional<Stage> stage = stage_of(backend, model.spec().layers.size());
  if (const Comm* comm = comm_of(backend); comm != nullptr && !stage) {
    for (KvShape& shape : plan.shapes) shape.kv_heads = kept_kv_heads(shape.kv_heads, comm->ranks());
  }
  if (options.beside.any() && comm_of(backend) != nullptr)
    return error(Code::unsupported,
                 "draft models and heads run on one rank so far; guess with ngram or suffix instead");
  for (KvShape shape : options.beside.layers) {
    shape.form = plan.options.kv;
    plan.shapes.push_back(shape);
  }
  TRY(auto specs, specs_of(plan.shapes));
  TRY(plan.layout,
      plan_layout(specs, {.page_tokens = plan.options.page_tokens, .snapshot_tokens = usual_snapshot_tokens(specs)}));
  if (stage) {
    // Pages are as large on every rank as the one with most needs them: each counts them alike.
    const int layers = static_cast<int>(plan.shapes.size()), ranks = stage->comm->ranks();
    const CacheLayout whole = std::exchange(plan.layout, plan.layout.with_layers(stage->begin, stage->end, layers));
    for (int rank = 0; rank < ranks; ++rank) {
      const int begin = first_layer(layers, ranks, rank), end = first_layer(layers, ranks, rank + 1);
      plan.layout.page_bytes = std::max(plan.layout.page_bytes, whole.with_layers(begin, end, layers).page_bytes);
    }
    for (int i = 0; i < layers; ++i)
      if (!stage->has(i)) plan.shapes[static_cast<size_t>(i)] = {};
  }
  if (plan.options.pages == 0) {
    const int each = plan.layout.peak_pages_for(plan.options.context, plan.options.rows) + plan.layout.kept_pages();
    Checked pages = Checked(each) * Checked(plan.options.sequences);
    if (!pages.within(1 << 30)) {
      return error(Code::no_memory, "{} sequences of {} tokens need too many pages; ask for fewer or a shorter context",
                   plan.options.sequences, plan.options.context);
    }
    plan.options.pages = static_cast<int32_t>(*pages.get());
  }
  TRY_VOID(plan_branches(backend, plan));
  TRY(plan.kv_bytes, Store::bytes_needed(plan.layout, plan.options.pages + plan.spare_pages));
  plan.staging_bytes = millrace::staging_bytes(model.spec(), plan.options, plan.layout, backend);
  plan.workspace_bytes = workspace_bytes(model, plan.options.rows, plan.options.wanted) + backend.fixed_workspace();
  return plan;
}

Result<std::unique_ptr<Executor>> Executor::create(const Model& model, Backend& backend,
                                                   const ExecutorOptions& options) {
  TRY(const Plan plan, Executor::plan(model, backend, options));
  std::unique_ptr<RankLead> lead = RankLead::of(backend);
  if (lead == nullptr) return create_here(model, backend, plan);
  lead->make(model, plan.options);
  auto made = create_here(model, backend, plan);
  TRY_VOID(lead->made(made.ok()));
  if (!made.ok()) return made;
  (*made)->ranks_ = comm_of(backend)->ranks();
  (*made)->lead_ = std::move(lead);
  return made;
}

Result<std::unique_ptr<Executor>> Executor::create_here(const Model& model, Backend& backend, const Plan& plan) {
  auto refused = [&](Error failure) {
    return within(
        fmt::format("no room for a context of {} tokens and {} sequences (KV {}, workspace {}, staging {}); "
                    "ask for a shorter context (-c) or a smaller KV format",
                    plan.options.context, plan.options.sequences, brief_bytes(static_cast<uint64_t>(plan.kv_bytes)),
                    brief_bytes(static_cast<uint64_t>(plan.workspace_bytes)),
                    brief_bytes(static_cast<uint64_t>(plan.staging_bytes))),
        std::move(failure));
  };
  auto memory = backend.allocate(Purpose::kv, plan.kv_bytes);
  if (!memory.ok()) return refused(memory.error());
  Store::Copier copier;
  if (backend.apart()) {
    copier = [&backend](std::byte* to, const std::byte* from, int64_t bytes) { backend.copy(to, from, bytes); };
  }
  TRY(Store store, Store::over(plan.layout, plan.shapes, plan.options.pages + plan.spare_pages,
                               {*memory, static_cast<size_t>(plan.kv_bytes)}, std::move(copier)));
  std::unique_ptr<Executor> executor(new Executor(model, backend, plan));
  executor->own_ = std::move(store);
  executor->store_ = &*executor->own_;
  executor->views_ = kv_views(model.spec(), *executor->store_);
  auto staging = executor->take_staging(backend);
  if (!staging.ok()) return refused(staging.error());
  auto ops = backend.make_ops(plan.workspace_bytes - backend.fixed_workspace());
  if (!ops.ok()) return refused(ops.error());
  executor->ops_ = std::move(*ops);
  return executor;
}

Result<std::unique_ptr<Executor>> Executor::create_in(Executor& host, int first, const Model& model, Backend& backend) {
  Plan plan = host.planned();
  plan.spare_pages = 0;
  plan.options.wanted = plan.options.sequences;
  plan.options.branches = plan.options.branch_tokens = 0;
  plan.kv_bytes = 0;
  plan.staging_bytes = millrace::staging_bytes(model.spec(), plan.options, plan.layout, backend);
  plan.workspace_bytes = workspace_bytes(model, plan.options.rows, plan.options.wanted) + backend.fixed_workspace();
  std::unique_ptr<Executor> executor(new Executor(model, backend, plan));
  executor->store_ = host.store_;
  executor->views_ = kv_views(model.spec(), *host.store_, host.first_beside() + first);
  TRY_VOID(executor->take_staging(backend));
  TRY(executor->ops_, backend.make_ops(plan.workspace_bytes - backend.fixed_workspace()));
  return executor;
}

Result<void> Executor::take_staging(Backend& backend) {
  if (apart_) {
    TRY(std::byte * results, backend.allocate_results(results_bytes(plan_.options, model_.spec())));
    results_ = reinterpret_cast<float*>(results);
    shortlist_rows_ = shortlist_rows(plan_.options, model_.spec());
    take_shortlist(results + logits_bytes(plan_.options, model_.spec()));
    best_.resize(static_cast<size_t>(plan_.options.wanted));
  }
  TRY(std::byte * memory, backend.allocate(Purpose::staging, arrays_bytes(plan_.options, plan_.layout, backend)));
  auto array = [&](int64_t count) {
    auto* start = reinterpret_cast<int32_t*>(memory);
    memory += array_bytes(count);
    return start;
  };
  const ExecutorOptions& o = plan_.options;
  step_.tokens = tokens_ = array(o.rows);
  step_.positions = positions_ = array(o.rows);
  step_.visible = visible_ = array(o.rows);
  step_.sequence = sequence_ = array(o.rows);
  const int64_t most = sequences_of(o, backend);
  step_.first_row = first_row_ = array(most + 1);
  step_.wanted_rows = wanted_rows_ = array(o.wanted);
  for (const CacheGroup& group : plan_.layout.groups) {
    int32_t stride = table_stride(group, o.context);
    pages_.push_back(array(most * stride));
    groups_.push_back({pages_.back(), stride});
  }
  step_.groups = groups_;
  return {};
}

void Executor::take_shortlist(std::byte* memory) {
  const auto rows = static_cast<size_t>(shortlist_rows_);
  batch_.tokens = reinterpret_cast<ShortlistToken*>(memory);
  batch_.found = reinterpret_cast<Shortlisted*>(batch_.tokens + rows * kShortlistTokens);
  batch_.asks = reinterpret_cast<ShortlistAsk*>(batch_.found + rows);
  std::uninitialized_value_construct_n(batch_.tokens, rows * kShortlistTokens);
  std::uninitialized_value_construct_n(batch_.found, rows);
  std::uninitialized_value_construct_n(batch_.asks, rows);
}

int32_t Executor::vocab() const { return model_.spec().vocab; }

// Puts a chunk behind what is staged already: as a sequence, or each of its rows as one.
void Executor::stage(const Chunk& chunk, bool alone) {
  const int32_t count = static_cast<int32_t>(chunk.tokens.size());
  const ExecutorOptions& o = plan_.options;
  CHECK(count > 0 && step_.rows + count <= o.rows, "{} rows staged and {} more, of {}", step_.rows, count, o.rows);
  CHECK(chunk.begin >= 0 && chunk.begin + count <= o.context, "positions {} to {} of {}", chunk.begin,
        chunk.begin + count, o.context);
  CHECK(chunk.tables.size() == groups_.size(), "{} page tables for {} groups", chunk.tables.size(), groups_.size());
  for (int32_t i = 0; i < count; ++i) {
    const int32_t row = step_.rows + i;
    const Token token = chunk.tokens[static_cast<size_t>(i)];
    CHECK(token >= 0 && token < vocab(), "token {} of {}", token, vocab());
    tokens_[row] = token;
    positions_[row] = chunk.begin + i;
    visible_[row] = chunk.begin + (chunk.whole ? count : i + 1);
    sequence_[row] = step_.sequences + (alone ? i : 0);
    if (i < count - chunk.wanted) continue;
    CHECK(step_.wanted < o.wanted, "logits of more than {} rows", o.wanted);
    wanted_rows_[step_.wanted++] = row;
  }
  for (size_t group = 0; group < groups_.size(); ++group) {
    std::span<const PageId> pages = chunk.tables[group].pages();
    CHECK(static_cast<int32_t>(pages.size()) <= groups_[group].stride, "{} pages of {}", pages.size(),
          groups_[group].stride);
    CHECK(static_cast<int>(pages.size()) >= plan_.layout.groups[group].pages_for(chunk.begin + count),
          "{} pages do not hold {} tokens", pages.size(), chunk.begin + count);
    for (int32_t i = 0; i < (alone ? count : 1); ++i)
      std::copy(pages.begin(), pages.end(), pages_[group] + int64_t{step_.sequences + i} * groups_[group].stride);
  }
  for (int32_t i = 0; i < count; ++i) {
    ++step_.rows;
    if (alone || i + 1 == count) first_row_[++step_.sequences] = step_.rows;
  }
}

// Whether the step is small enough, of texts that want logits of all their rows, and nothing goes from row to row.
bool Executor::rows_alone(std::span<const Chunk> chunks) const {
  size_t rows = 0;
  for (const Chunk& chunk : chunks) {
    const size_t own = chunk.tokens.size();
    if (chunk.whole || static_cast<size_t>(chunk.wanted) != own || own > kMostOfText) return false;
    rows += own;
  }
  return apart_ && rows > chunks.size() && rows <= kMostAlone && plan_.layout.resumes_anywhere();
}

void Executor::carry_out(KvCache& cache) {
  if (!cache.has_moves()) return;
  std::vector<PageCopy> copies;
  for (const PageMove& move : cache.take_moves()) {
    CHECK(move.kind == PageMove::Kind::copy, "there is no second store to move pages to");
    copies.push_back({move.from, move.to});
  }
  copy_pages(copies);
}

Result<std::unique_ptr<Store>> Executor::make_second(int64_t bytes) {
  const int64_t each = bytes / ranks_;
  const int pages = Store::pages_within(plan_.layout, each);
  if (pages < 1) return std::unique_ptr<Store>();
  if (lead_) lead_->make_second(pages, each);
  auto made = Store::create(plan_.layout, plan_.shapes, pages, each);
  if (lead_) TRY_VOID(lead_->made(made.ok()));
  if (!made.ok()) return made.error();
  return std::make_unique<Store>(std::move(*made));
}

void Executor::move_pages(std::span<const PageMove> moves, Store* second, std::vector<uint8_t>& failed) {
  if (lead_) lead_->moves(moves);
  millrace::carry_out(moves, *store_, second, failed);
}

void Executor::copy_pages(std::span<const PageCopy> copies) {
  if (lead_) lead_->copies(copies);
  store_->copy(copies);
}

Tensor Executor::pass(std::span<const Chunk> chunks) {
  CHECK(!chunks.empty() && static_cast<int32_t>(chunks.size()) <= most_chunks(), "{} sequences of {}", chunks.size(),
        most_chunks());
  step_.rows = step_.wanted = step_.sequences = 0;
  first_row_[0] = 0;
  const bool alone = rows_alone(chunks);
  for (const Chunk& chunk : chunks) stage(chunk, alone);
  if (lead_) lead_->step(chunks);
  ++counters_.steps;
  counters_.rows += step_.rows;
  const bool adapted = stage_adapters(chunks);
  Ops& ops = adapted ? static_cast<Ops&>(*adapted_) : *ops_;
  taps_.out.rows = step_.rows;
  const Tensor logits = ops_->repeat(step_);
  return logits ? logits : forward(ops, model_, views_, step_, nullptr, taps_.layers.empty() ? nullptr : &taps_);
}

Result<int> Executor::load_adapter(const Adapter& adapter) {
  if (ranks_ > 1)
    return error(Code::unsupported, "adapters change whole products, and {} ranks have parts of them: use one rank",
                 ranks_);
  if (adapted_ == nullptr) {
    const ExecutorOptions& o = plan_.options;
    const int64_t rows = array_bytes(o.rows), wanted = array_bytes(o.wanted);
    TRY(std::byte * memory, backend_.allocate(Purpose::staging, 2 * rows + 2 * wanted));
    row_adapters_ = reinterpret_cast<int32_t*>(memory);
    row_strengths_ = reinterpret_cast<float*>(memory + rows);
    wanted_adapters_ = reinterpret_cast<int32_t*>(memory + 2 * rows);
    wanted_strengths_ = reinterpret_cast<float*>(memory + 2 * rows + wanted);
    adapted_ = std::make_unique<AdaptedOps>(*ops_, *adapters_);
  }
  return adapters_->add(adapter);
}

void Executor::unload_adapter(int place) { adapters_->remove(place); }
int64_t Executor::adapter_bytes(int place) const { return adapters_->bytes(place); }

// A step without adapters is what it was before there were any.
bool Executor::stage_adapters(std::span<const Chunk> chunks) {
  step_.adapters = step_.wanted_adapters = nullptr;
  step_.strengths = step_.wanted_strengths = nullptr;
  auto place_of = [&](const Chunk& chunk) { return chunk.adapter >= 0 ? chunk.adapter : usual_adapter_; };
  if (std::none_of(chunks.begin(), chunks.end(), [&](const Chunk& chunk) { return place_of(chunk) >= 0; }))
    return false;
  size_t at = 0;
  auto end = static_cast<int32_t>(chunks[0].tokens.size());
  for (int32_t row = 0; row < step_.rows; ++row) {
    while (row >= end) end += static_cast<int32_t>(chunks[++at].tokens.size());
    const Chunk& chunk = chunks[at];
    CHECK(place_of(chunk) < 0 || adapters_->has(place_of(chunk)), "no adapter at place {}", place_of(chunk));
    row_adapters_[row] = place_of(chunk);
    row_strengths_[row] = chunk.adapter >= 0 ? chunk.strength : usual_strength_;
  }
  for (int32_t i = 0; i < step_.wanted; ++i) {
    wanted_adapters_[i] = row_adapters_[wanted_rows_[i]];
    wanted_strengths_[i] = row_strengths_[wanted_rows_[i]];
  }
  step_.adapters = row_adapters_;
  step_.adapter_set = adapters_->version();
  step_.strengths = row_strengths_;
  step_.wanted_adapters = wanted_adapters_;
  step_.wanted_strengths = wanted_strengths_;
  return true;
}

Result<void> Executor::tap(const std::vector<int32_t>& layers, Backend& backend) {
  if (layers.empty()) return {};
  if (comm_of(backend) != nullptr)
    return error(Code::unsupported,
                 "heads that read the model's streams run on one rank so far; guess with ngram or suffix instead");
  if (!taps_.layers.empty()) return error(Code::invalid, "one head at a time reads the model's streams");
  const int64_t needed = workspace_bytes(model_, plan_.options.rows, plan_.options.wanted, layers);
  if (needed + backend.fixed_workspace() > plan_.workspace_bytes)
    return error(Code::unsupported,
                 "the model's last layer needs {} bytes more for all rows of a step than was planned, so heads cannot "
                 "read its streams; guess with ngram, suffix or a draft model instead",
                 needed + backend.fixed_workspace() - plan_.workspace_bytes);
  const int64_t rows = plan_.options.rows, cols = static_cast<int64_t>(layers.size()) * model_.spec().width;
  const auto row_bytes = cols * static_cast<int64_t>(sizeof(float));
  TRY(std::byte * numbers, backend.allocate(Purpose::workspace, rows * row_bytes));
  TRY(std::byte * every, backend.allocate(Purpose::workspace, array_bytes(rows)));
  std::vector<int32_t> ascending(static_cast<size_t>(rows));
  std::iota(ascending.begin(), ascending.end(), 0);
  backend.copy(every, reinterpret_cast<const std::byte*>(ascending.data()), rows * 4);
  taps_ = {.layers = layers,
           .every_row = reinterpret_cast<const int32_t*>(every),
           .out = {numbers, DType::f32, 0, cols, row_bytes}};
  return {};
}

// A machine that failed gives rows that say so: whoever samples them ends its own answer with an error.
void Executor::fail(const std::string& failure, Tensor logits) {
  std::fprintf(stderr, "%s\n", failure.c_str());
  ++counters_.failed;
  std::fill_n(results_, logits.rows * logits.cols, std::numeric_limits<float>::quiet_NaN());
  std::fill(best_.begin(), best_.end(), -1);
  std::fill_n(batch_.found, shortlist_rows_, Shortlisted{});
}

Tensor Executor::run(std::span<const Chunk> chunks) {
  Tensor logits = pass(chunks);
  if (!apart_) return logits;
  logits.cols = vocab();
  if (std::string failure = ops_->fetch(logits, results_, nullptr); !failure.empty()) fail(failure, logits);
  counters_.whole += logits.rows;
  return {reinterpret_cast<std::byte*>(results_), DType::f32, logits.rows, logits.cols,
          logits.cols * static_cast<int64_t>(sizeof(float))};
}

std::span<const int32_t> Executor::run_best(std::span<const Chunk> chunks) {
  CHECK(apart_, "this backend's logits are read where they are");
  const Tensor logits = pass(chunks);
  if (std::string failure = ops_->fetch(logits, nullptr, best_.data()); !failure.empty()) fail(failure, logits);
  return std::span(best_).first(static_cast<size_t>(logits.rows));
}

std::span<const Shortlisted> Executor::run_shortlist(std::span<const Chunk> chunks) {
  last_ = pass(chunks);
  last_.cols = vocab();
  CHECK(takes_shortlists(last_.rows), "{} rows, of at most {}", last_.rows, shortlist_rows_);
  if (std::string failure = ops_->fetch_shortlist(last_, batch_, results_); !failure.empty()) fail(failure, last_);
  for (int64_t i = 0; i < last_.rows; ++i)
    ++(batch_.asks[i].kind == ShortlistKind::whole ? counters_.whole : counters_.shortlisted);
  return {batch_.found, static_cast<size_t>(last_.rows)};
}

std::span<const float> Executor::row(int64_t index) const {
  return {results_ + index * vocab(), static_cast<size_t>(vocab())};
}

std::span<const float> Executor::fetch_row(int64_t index) {
  const Tensor one = {last_.data + index * last_.stride, last_.type, 1, last_.cols, last_.stride};
  float* to = results_ + index * vocab();
  if (std::string failure = ops_->fetch(one, to, nullptr); !failure.empty())
    std::fill_n(to, vocab(), std::numeric_limits<float>::quiet_NaN());
  ++counters_.unsettled;
  return row(index);
}

}  // namespace millrace
