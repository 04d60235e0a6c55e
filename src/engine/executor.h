// Executor: turns chunks of sequences into a Step and a Step into logits. It owns what steps need over and over (the
// store of keys and values, the workspace, the arrays a Step points to), all planned and taken at create(), at
// addresses that do not change: a step allocates nothing. It knows nothing of requests, time or who comes next; page
// tables come from whoever keeps the cache. Engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/shortlist.h"
#include "base/result.h"
#include "base/token.h"
#include "cache/kv_cache.h"
#include "cache/page_table.h"
#include "cache/spec.h"
#include "cache/store.h"
#include "model/forward.h"
#include "model/model.h"
#include "tensor/dtype.h"

namespace millrace {

struct Adapter;
class AdapterSet;
class AdaptedOps;

// Layers that every token has beside the model's, of whoever guesses what comes next (engine/draft): of a head on the
// model's streams, of a draft model. Their form is the cache's.
struct BesideLayers {
  std::vector<KvShape> layers;
  bool look_back = false;  // what is kept of a token needs what computing the one before it gives

  bool any() const { return !layers.empty(); }
  void add(const BesideLayers& more);  // behind those that are there
};
// Refuses layers that a cache was not planned for, as those from `first` on.
Result<void> check_beside(const BesideLayers& planned, int first, const BesideLayers& wanted);

struct ExecutorOptions {
  int32_t context = 0;    // tokens of the longest sequence; 0: as many as the model was made for
  int32_t rows = 512;     // tokens computed in one step, all sequences together
  int32_t sequences = 1;  // that take part in one step
  int32_t wanted = 0;     // rows whose logits one step may ask for; 0: one per sequence
  int32_t pages = 0;      // of the store; 0: enough for every sequence to grow to the context
  KvForm kv;
  int32_t page_tokens = 16;
  // Other ways to go on that a step computes beside each sequence, and tokens that one may have: so many chunks more,
  // and pages for them behind those of the cache (draft/branches.h).
  int32_t branches = 0, branch_tokens = 0;
  BesideLayers beside;
  bool sees_ahead = false;  // a model whose tokens see those after them will be run by whoever knows how
};

// What an executor must be for requests of this model: where masks are filled, a step has room for the longest
// sequence whole, and for logits of all its rows.
void suit_requests(const ModelSpec& spec, ExecutorOptions& options);

class RankLead;

// Tokens of one sequence to compute in a step.
struct Chunk {
  std::span<const Token> tokens;      // at least one
  int32_t begin = 0;                  // position of the first
  std::span<const PageTable> tables;  // one per cache group, with room up to begin + tokens.size()
  int32_t wanted = 1;                 // how many of the last of them give logits
  bool whole = false;                 // each of them sees all of them, whatever comes after it (diffusion)
  int32_t adapter = -1;               // what changes the weights for it (Executor::adapters); -1: the usual, if any
  float strength = 1;                 // its changes are multiplied with it
};

class Executor {
 public:
  // What the options come to, before anything is taken.
  struct Plan {
    ExecutorOptions options;  // zeros filled in
    CacheLayout layout;
    std::vector<KvShape> shapes;
    int32_t spare_pages = 0;  // of branches
    int64_t kv_bytes = 0, workspace_bytes = 0, staging_bytes = 0;
    int64_t bytes() const { return kv_bytes + workspace_bytes + staging_bytes; }
  };
  static Result<Plan> plan(const Model& model, const Backend& backend, const ExecutorOptions& options);
  // What a step's arrays take, for settings with nothing left open but the pages.
  static Result<int64_t> staging_bytes(const ModelSpec& spec, const CacheLayout& layout, const ExecutorOptions& options,
                                       const Backend& backend);
  // The model and the backend outlive the executor. Refused with the numbers if it does not fit the backend's limit.
  static Result<std::unique_ptr<Executor>> create(const Model& model, Backend& backend, const ExecutorOptions& options);
  // Of a draft model that keeps its keys and values in the host's pages, as its layers `first` and on of those beside.
  // Chunks have the host's tables. The host outlives it.
  static Result<std::unique_ptr<Executor>> create_in(Executor& host, int first, const Model& model, Backend& backend);
  ~Executor();

  const ExecutorOptions& options() const { return plan_.options; }
  const CacheLayout& layout() const { return plan_.layout; }
  const Plan& planned() const { return plan_; }
  int32_t most_chunks() const { return plan_.options.sequences * (1 + plan_.options.branches); }
  const Model& model() const { return model_; }
  Store& store() { return *store_; }
  // A cache of its pages looks back so far, for the sake of layers beside the model's.
  int look_back() const { return plan_.options.beside.look_back && plan_.layout.resumes_anywhere() ? 1 : 0; }
  // Of the layers that the options have beside the model's.
  const KvView& beside(int index = 0) const { return store_->view(first_beside() + index); }
  int32_t vocab() const;

  // One pass. Logits come in the order of the chunks and of positions within them, [wanted rows, vocab], float32, valid
  // until the next run. The chunks fit the options, and token ids are within the vocabulary: whoever plans steps sees
  // to that.
  Tensor run(std::span<const Chunk> chunks);
  // The same where only the place of each row's largest logit is wanted (-1: it has none), which a machine apart can
  // find by itself, without bringing all logits here. Only if picks().
  bool picks() const { return apart_; }
  std::span<const int32_t> run_best(std::span<const Chunk> chunks);

  // The same where of each wanted row what its ask says is wanted (backend/shortlist.h), in the order of rows. The span
  // is whoever plans the step's to fill before shortlist(); found until the next run. Whole rows are read with row(),
  // and those that turn out to be wanted whole after all with fetch_row().
  bool takes_shortlists(int64_t rows) const { return shortlist_rows_ > 0 && rows <= shortlist_rows_; }
  std::span<ShortlistAsk> asks() { return {batch_.asks, static_cast<size_t>(shortlist_rows_)}; }
  std::span<const Shortlisted> run_shortlist(std::span<const Chunk> chunks);
  std::span<const float> row(int64_t index) const;
  std::span<const float> fetch_row(int64_t index);

  // From now on every step also gives the streams entering these layers (model/forward.h), of all its rows. Once,
  // before the first step. They lie where they are computed.
  Result<void> tap(const std::vector<int32_t>& layers, Backend& backend);
  Tensor tapped() const { return taps_.out; }  // [rows of the last step, layers * width]

  // Adapters that chunks may name. To be changed between steps only.
  Result<int> load_adapter(const Adapter& adapter);  // its place
  void unload_adapter(int place);
  int64_t adapter_bytes(int place) const;
  // What chunks that name none have; -1: nothing.
  void use_adapter(int place, float strength) { usual_adapter_ = place, usual_strength_ = strength; }

  // Carries out the page moves a cache without a second store planned. Before run().
  void carry_out(KvCache& cache);
  // Moves and copies of pages, on every rank where there are several. A second store is made here, so that each rank
  // has its own: of so many bytes over all ranks; null if they hold no page.
  Result<std::unique_ptr<Store>> make_second(int64_t bytes);
  void move_pages(std::span<const PageMove> moves, Store* second, std::vector<uint8_t>& failed);
  void copy_pages(std::span<const PageCopy> copies);

  struct Counters {
    int64_t steps = 0, rows = 0;
    int64_t failed = 0;  // steps that a machine apart did not get through
    // Rows that a machine apart brought in part; whole, as asked; and whole because the part was not enough.
    int64_t shortlisted = 0, whole = 0, unsettled = 0;
  };
  const Counters& counters() const { return counters_; }

 private:
  Executor(const Model& model, Backend& backend, Plan plan);
  int first_beside() const { return static_cast<int>(plan_.shapes.size() - plan_.options.beside.layers.size()); }
  static Result<std::unique_ptr<Executor>> create_here(const Model& model, Backend& backend, const Plan& plan);
  void take_shortlist(std::byte* memory);
  Result<void> take_staging(Backend& backend);
  Tensor pass(std::span<const Chunk> chunks);
  bool rows_alone(std::span<const Chunk> chunks) const;
  void fail(const std::string& failure, Tensor logits);
  void stage(const Chunk& chunk, bool alone);
  bool stage_adapters(std::span<const Chunk> chunks);  // whether any chunk has one

  const Model& model_;
  Backend& backend_;
  Plan plan_;
  std::optional<Store> own_;
  Store* store_ = nullptr;  // its own, or its host's
  bool apart_;
  float* results_ = nullptr;    // [wanted, vocab] on the host, if the machine is apart
  std::vector<int32_t> best_;   // [wanted]
  ShortlistBatch batch_;        // [shortlist_rows_]
  int64_t shortlist_rows_ = 0;  // 0: rows come whole
  Tensor last_;                 // what the last step gave, where it was computed
  std::unique_ptr<Ops> ops_;
  std::vector<KvView> views_;       // one per layer
  std::vector<PageTables> groups_;  // what the step's groups point to

  // Staging, at fixed addresses.
  Step step_;
  int32_t *tokens_ = nullptr, *positions_ = nullptr, *visible_ = nullptr, *sequence_ = nullptr, *first_row_ = nullptr,
          *wanted_rows_ = nullptr;
  Taps taps_;                    // no layers: nothing is tapped
  std::vector<int32_t*> pages_;  // per group, [sequences * stride]

  // Adapters; their arrays are there once one was loaded.
  std::unique_ptr<AdapterSet> adapters_;
  std::unique_ptr<AdaptedOps> adapted_;
  int32_t *row_adapters_ = nullptr, *wanted_adapters_ = nullptr;
  float *row_strengths_ = nullptr, *wanted_strengths_ = nullptr;
  int32_t usual_adapter_ = -1;
  float usual_strength_ = 1;
  Counters counters_;
  int ranks_ = 1;
  std::unique_ptr<RankLead> lead_;  // null: there are no other ranks, or this is not the first
};

}  // namespace millrace
