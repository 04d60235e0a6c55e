// Shelf: several models behind one server. The first has the server's own service; each of the others gets a service of
// its own, and an engine process, when somebody asks for it by name. Where memory is short, models that nobody waits
// for are put to sleep, the one longest unused first. Requests for a model that is on its way wait for it, or are told
// when to come again.
//
//   pass           I/O thread    for every request, before the first model's service handles it
//   bring          a thread of its own: loads, wakes and puts to sleep, one after another
//   all else       any thread
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"
#include "server/service.h"
#include "server/workers.h"

namespace millrace {

struct ShelfModel {
  std::string name;
  int64_t bytes = 0;  // of its files
};

struct ShelfOptions {
  ShelfModel first;
  std::vector<ShelfModel> others;
  int64_t memory = 0;    // for all that are awake
  int most_awake = 0;    // 0: as many as memory holds
  double patience = 60;  // seconds a request waits for its model at the most; longer ones are told to come again
  size_t most_waiting = 1024;
  std::function<Result<ServedModel>(const std::string& name, int64_t memory)> load;
  std::function<ServiceOptions()> service;  // for each of the others
  std::function<void(std::string_view line)> log = {};
};

enum class ModelState : uint8_t { cold, loading, awake, asleep };
std::string_view state_name(ModelState state);

class Shelf {
 public:
  explicit Shelf(ShelfOptions options);
  ~Shelf();
  Shelf(const Shelf&) = delete;
  Shelf& operator=(const Shelf&) = delete;

  // Before the first request.
  void set_first(Service& first);
  // The first model is there.
  void first_loaded();

  // While it lives its model is not put to sleep.
  class Pass {
   public:
    explicit Pass(std::atomic<int>* coming) : coming_(coming) { coming_->fetch_add(1); }
    Pass(Pass&& other) noexcept : coming_(std::exchange(other.coming_, nullptr)) {}
    Pass& operator=(Pass&&) = delete;
    ~Pass() {
      if (coming_ != nullptr) coming_->fetch_sub(1);
    }

   private:
    std::atomic<int>* coming_;
  };
  // A request for the first model passes; any other is taken, and answered here or by another service.
  std::optional<Pass> pass(HttpRequest& request, std::shared_ptr<Exchange>& exchange);

  struct Listed {
    std::string name;
    ModelState state = ModelState::cold;
    int64_t bytes = 0;
    std::shared_ptr<const ServedModel> served;  // null while it was never loaded
    Service* service = nullptr;
  };
  std::vector<Listed> list();  // the first comes first

  int open();  // requests of the others, and those that wait
  void drain();
  void fail_all(std::string_view why);
  void close();  // nothing is brought any more, and the others are gone

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    HttpRequest request;
    std::shared_ptr<Exchange> exchange;
  };
  struct Item {
    ShelfModel model;
    ModelState state = ModelState::cold;
    Service* service = nullptr;
    std::unique_ptr<Service> own;
    std::deque<Waiting> waiting;
    std::atomic<int> coming = 0;
    Clock::time_point used = {}, begun = {};
    double seconds = 0;       // its last load took
    int64_t awake_bytes = 0;  // that it takes, as far as is known
  };

  Item* find(const HttpRequest& request);
  double expected(const Item& item) const;
  void answer(const HttpRequest& request, Exchange& exchange, const ApiError& failure) const;
  void begin(Item& item);
  void bring(Item& item);
  Result<void> make_room(Item& item);
  Item* idle_one(const Item& except);
  Result<void> put_to_sleep(Item& item);
  Result<void> load(Item& item, int64_t room);
  Result<void> load_or_wake(Item& item);
  void release(Item& item, const Result<void>& brought);
  int64_t room_beside(const Item& item) const;
  int64_t need_of(const Item& item) const;
  int awake_beside(const Item& item) const;

  const ShelfOptions options_;
  mutable std::mutex mutex_;  // guards the items
  std::vector<std::unique_ptr<Item>> items_;
  double rate_ = 4e8;  // bytes of files loaded a second, as the last load went
  std::atomic<bool> stopping_ = false;
  Workers worker_{1, "models"};
};

// What there is, on a shelf or alone.
std::vector<Shelf::Listed> models_of(Service& service);

// The model a request names: in its query, or in the top level of its body. Empty if it names none.
std::string named_model(const HttpRequest& request);

}  // namespace millrace
