// The world of one simulated seed: sizes, chances, and the requests that come. Everything follows from the seed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/hash_model.h"
#include "engine/policy.h"
#include "engine/scheduler.h"

namespace millrace {

struct OpenRequest {
  Request request;
  std::vector<HashAnswer> truth;  // by choice
  std::vector<int> received;      // tokens so far, by choice; -1: ended
};

struct World {
  explicit World(uint64_t seed);

  int arrivals(bool idle);  // requests that come before the next step
  Request request();
  double step_seconds(const StepPlan& plan);
  void remember(const std::vector<Token>& tokens, const Request& request);  // an answer that somebody may go on from

  Dice dice;
  CacheLayout layout;
  int look_back = 0;  // 1: a head keeps a layer beside the model's
  int pages = 0, second_pages = 0, vocab = 0;
  int branches = 0, spare_pages = 0;  // other ways to go on that are tried beside the first, and room for them
  Limits limits;
  std::string policy;
  bool overlap = false;
  HashFaults faults;
  double cancel_chance = 0, arrival_chance = 0, many_chance = 0, slow_chance = 0;
  int longest = 0;  // prompt and answer of a usual request
  int tenants = 1;
  int64_t least_requests = 30;

 private:
  struct Story {
    std::vector<Token> tokens;
    int tenant;
  };
  void make_layout();
  std::vector<Token> random_tokens(int count);
  std::vector<std::vector<Token>> beginnings_;
  std::vector<Story> stories_;
};

// Knows the truth and tells it most of the time.
class WorldDrafter {
 public:
  explicit WorldDrafter(World& world) : world_(world) {}
  void open(RequestId request, const std::vector<HashAnswer>& truth) { truth_[request] = truth; }
  void close(RequestId request) { truth_.erase(request); }
  void propose(const Work& work, int at, HashModel::Guesses& out);

 private:
  void branch_off(const std::vector<Token>& truth, size_t at, int rows, HashModel::Guesses& out);
  World& world_;
  std::map<RequestId, std::vector<HashAnswer>> truth_;
};

// As many guesses as the dice say, or as pay in a world whose steps take what step_seconds() says.
std::unique_ptr<DraftControl> world_control(World& world);

}  // namespace millrace
