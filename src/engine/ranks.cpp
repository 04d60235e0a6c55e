#include "engine/ranks.h"

#include <array>
#include <cstring>
#include <map>
#include <type_traits>

#include "backend/ranks/ranks.h"
#include "engine/executor.h"

namespace millrace {
namespace {

enum class Told : uint8_t { stop, make, second, gone, step, moves, copies };

// What an executor's model must agree in: ranks that loaded another file would give nonsense.
struct ModelNumbers {
  int64_t layers = 0, width = 0, vocab = 0, parameters = 0;
  friend bool operator==(const ModelNumbers&, const ModelNumbers&) = default;
};

ModelNumbers numbers_of(const Model& model) {
  return {static_cast<int64_t>(model.spec().layers.size()), model.spec().width, model.spec().vocab, model.parameters()};
}

// All of them but the layers of whoever guesses: several ranks have none (Executor::plan). A setting that is new does
// not compile before it is here.
template <class F>
void each_setting(ExecutorOptions& options, F&& take) {
  auto& [context, rows, sequences, wanted, pages, kv, page_tokens, branches, branch_tokens, beside, sees_ahead] =
      options;
  static_cast<void>(beside);
  take(context), take(rows), take(sequences), take(wanted), take(pages), take(kv), take(page_tokens);
  take(branches), take(branch_tokens), take(sees_ahead);
}

class Writer {
 public:
  Writer(std::vector<std::byte>& out, Told what, int32_t number) : out_(out) {
    out_.clear();
    put(what);
    put(number);
  }
  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    put_bytes(&value, sizeof value);
  }
  template <class T>
  void put_all(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    put(static_cast<uint32_t>(values.size()));
    put_bytes(values.data(), values.size_bytes());
  }

 private:
  void put_bytes(const void* from, size_t bytes) {
    const auto* first = static_cast<const std::byte*>(from);
    out_.insert(out_.end(), first, first + bytes);
  }
  std::vector<std::byte>& out_;
};

// What is not there reads as nothing, and then the message is bad.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> rest) : rest_(rest) {}
  template <class T>
  T take() {
    T value{};
    take_bytes(&value, sizeof value);
    return value;
  }
  template <class T>
  void take_all(std::vector<T>& out) {
    const auto count = take<uint32_t>();
    if (count > rest_.size() / sizeof(T)) good_ = false;
    out.resize(good_ ? count : 0);
    take_bytes(out.data(), out.size() * sizeof(T));
  }
  bool good() const { return good_; }
  bool done() const { return good_ && rest_.empty(); }

 private:
  void take_bytes(void* to, size_t bytes) {
    if (bytes > rest_.size()) good_ = false;
    if (!good_ || bytes == 0) return;
    std::memcpy(to, rest_.data(), bytes);
    rest_ = rest_.subspan(bytes);
  }
  std::span<const std::byte> rest_;
  bool good_ = true;
};

}  // namespace

std::unique_ptr<RankLead> RankLead::of(const Backend& backend) {
  Comm* const comm = comm_of(backend);
  if (comm == nullptr || comm->ranks() < 2 || comm->rank() != 0) return nullptr;
  return std::unique_ptr<RankLead>(new RankLead(*comm));
}

RankLead::~RankLead() {
  if (!told_) return;
  Writer(message_, Told::gone, number_);
  comm_.broadcast(message_);
}

void RankLead::make(const Model& model, const ExecutorOptions& options) {
  Writer out(message_, Told::make, number_);
  out.put(numbers_of(model));
  ExecutorOptions told = options;
  each_setting(told, [&](const auto& setting) { out.put(setting); });
  comm_.broadcast(message_);
  told_ = true;
}

void RankLead::make_second(int pages, int64_t budget) {
  Writer out(message_, Told::second, number_);
  out.put(pages);
  out.put(budget);
  comm_.broadcast(message_);
}

Result<void> RankLead::made(bool here) {
  if (comm_.agree(here) || !here) return {};  // what failed here is known here
  return error(Code::no_memory,
               "another of the {} ranks has no room for its part, or loaded another model; its own message says which",
               comm_.ranks());
}

void RankLead::step(std::span<const Chunk> chunks) {
  Writer out(message_, Told::step, number_);
  out.put(static_cast<uint32_t>(chunks.size()));
  for (const Chunk& chunk : chunks) {
    out.put(chunk.begin);
    out.put(chunk.wanted);
    out.put(chunk.whole);
    out.put_all(chunk.tokens);
    out.put(static_cast<uint32_t>(chunk.tables.size()));
    for (const PageTable& table : chunk.tables) out.put_all(table.pages());
  }
  comm_.broadcast(message_);
}

void RankLead::moves(std::span<const PageMove> moves) {
  if (moves.empty()) return;
  Writer out(message_, Told::moves, number_);
  out.put_all(moves);
  comm_.broadcast(message_);
}

void RankLead::copies(std::span<const PageCopy> copies) {
  if (copies.empty()) return;
  Writer out(message_, Told::copies, number_);
  out.put_all(copies);
  comm_.broadcast(message_);
}

void stop_ranks(Comm& comm) {
  std::vector<std::byte> message;
  Writer(message, Told::stop, 0);
  comm.broadcast(message);
}

namespace {

class Follower {
 public:
  Follower(const Model& model, Backend& backend) : model_(model), backend_(backend) {}

  // True: go on.
  Result<bool> obey(std::span<const std::byte> message) {
    Reader in(message);
    const Told what = in.take<Told>();
    const auto number = in.take<int32_t>();
    if (what == Told::stop) return false;
    if (what == Told::make) {
      make(number, in);
    } else {
      const auto found = led_.find(number);
      if (!in.good() || found == led_.end())
        return error(Code::corrupt, "rank 0 speaks of executor {}, which it did not make", number);
      if (what == Told::gone) led_.erase(found);
      if (what == Told::second) make_second(found->second, in);
      if (what == Told::step) TRY_VOID(step(found->second, in));
      if (what == Told::moves) {
        in.take_all(moves_);
        carry_out(moves_, found->second.executor->store(), found->second.second.get(), failed_);
      }
      if (what == Told::copies) {
        in.take_all(copies_);
        found->second.executor->store().copy(copies_);
      }
    }
    if (!in.done()) return error(Code::corrupt, "a message of rank 0 of {} bytes cannot be read", message.size());
    return true;
  }

 private:
  struct Led {
    std::unique_ptr<Executor> executor;
    std::unique_ptr<Store> second;
  };
  // A chunk and what it points to.
  struct Held {
    std::vector<Token> tokens;
    std::vector<PageTable> tables;
  };

  void say(const Error& why) const {
    std::fprintf(stderr, "rank %d: %s\n", comm_of(backend_)->rank(), why.message.c_str());
  }

  void make(int32_t number, Reader& in) {
    const auto numbers = in.take<ModelNumbers>();
    ExecutorOptions options;
    each_setting(options, [&](auto& setting) { setting = in.take<std::remove_reference_t<decltype(setting)>>(); });
    Result<std::unique_ptr<Executor>> made =
        numbers == numbers_of(model_)
            ? Executor::create(model_, backend_, options)
            : error(Code::invalid, "a model of {} parameters was loaded here, on rank 0 one of {}", model_.parameters(),
                    numbers.parameters);
    if (!made.ok()) say(made.error());
    const bool ok = made.ok();
    Led& led = led_[number];
    if (ok) led.executor = std::move(*made);
    comm_of(backend_)->agree(ok);
  }

  void make_second(Led& led, Reader& in) {
    const int pages = in.take<int>();
    const auto budget = in.take<int64_t>();
    auto made = Store::create(led.executor->layout(), led.executor->planned().shapes, pages, budget);
    if (!made.ok()) say(made.error());
    if (made.ok()) led.second = std::make_unique<Store>(std::move(*made));
    comm_of(backend_)->agree(led.second != nullptr);
  }

  Result<void> step(Led& led, Reader& in) {
    const auto& groups = led.executor->layout().groups;
    const auto count = in.take<uint32_t>();
    chunks_.clear();
    for (uint32_t i = 0; i < count && in.good(); ++i) {
      if (held_.size() <= i) held_.emplace_back();
      Held& held = held_[i];
      Chunk chunk;
      chunk.begin = in.take<int32_t>();
      chunk.wanted = in.take<int32_t>();
      chunk.whole = in.take<bool>();
      in.take_all(held.tokens);
      const auto tables = in.take<uint32_t>();
      held.tables.clear();
      for (uint32_t g = 0; g < tables && g < groups.size() && in.good(); ++g) {
        held.tables.emplace_back(groups[g].page_tokens, groups[g].pinned());
        in.take_all(pages_);
        for (const PageId page : pages_) held.tables.back().push(page);
      }
      chunks_.push_back(chunk);
    }
    if (!in.done()) return error(Code::corrupt, "a step of {} sequences cannot be read", count);
    for (size_t i = 0; i < chunks_.size(); ++i) {
      chunks_[i].tokens = held_[i].tokens;
      chunks_[i].tables = held_[i].tables;
    }
    static_cast<void>(led.executor->run(chunks_));  // rank 0 has the same logits
    return {};
  }

  const Model& model_;
  Backend& backend_;
  std::map<int32_t, Led> led_;
  std::vector<PageMove> moves_;
  std::vector<PageCopy> copies_;
  std::vector<uint8_t> failed_;
  std::vector<Chunk> chunks_;
  std::vector<Held> held_;
  std::vector<PageId> pages_;
};

}  // namespace

Result<void> follow_ranks(const Model& model, Backend& backend) {
  Follower follower(model, backend);
  std::vector<std::byte> message;
  for (;;) {
    comm_of(backend)->broadcast(message);
    TRY(const bool more, follower.obey(message));
    if (!more) return {};
  }
}

}  // namespace millrace
