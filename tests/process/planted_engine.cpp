#include "process/planted_engine.h"

#include <signal.h>

#include <algorithm>

#include "backend/cpu/cpu.h"
#include "backend/rest.h"
#include "engine/engine.h"
#include "engine/runner.h"
#include "engine/watch.h"
#include "process/engine_child.h"
#include "tensor/checkpoint.h"

namespace millrace {
namespace {

struct TinyModel {
  Checkpoint checkpoint;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
};

Result<std::shared_ptr<TinyModel>> open(const char* path) {
  auto tiny = std::make_shared<TinyModel>();
  TRY(tiny->checkpoint, Checkpoint::open(path));
  TRY(tiny->backend, make_cpu_backend({.threads = 1}));
  TRY(tiny->model, Model::load(tiny->checkpoint, *tiny->backend));
  return tiny;
}

// Crashes when the step is noted and before it is computed.
class CrashingWatch : public EngineWatch {
 public:
  explicit CrashingWatch(EngineWatch& inner) : inner_(inner) {}
  void awake() override { inner_.awake(); }
  void step_begins(const Launch& launch) override {
    inner_.step_begins(launch);
    for (size_t i = 0; i < launch.used; ++i) {
      const Launch::Item& item = launch.items[i];
      const std::vector<Token>& prompt = item.asked->prompt;
      const auto begin = prompt.begin() + std::min<ptrdiff_t>(item.begin, std::ssize(prompt));
      const auto end = prompt.begin() + std::min<ptrdiff_t>(item.begin + item.count, std::ssize(prompt));
      if (std::find(begin, end, kPoison) == end) continue;
      ::signal(SIGSEGV, SIG_DFL);
      ::raise(SIGSEGV);
    }
  }
  void step_ended(int64_t failed) override { inner_.step_ended(failed); }
  void shown(const EngineSnapshot& snapshot) override { inner_.shown(snapshot); }

 private:
  EngineWatch& inner_;
};

}  // namespace

int be_planted_engine(const char* path) {
  std::shared_ptr<TinyModel> tiny;
  std::unique_ptr<CrashingWatch> crashing;
  const auto load = [&]() -> Result<bool> {
    TRY(tiny, open(path));
    return rest_backend(*tiny->backend);
  };
  const auto make = [&](EngineWatch& watch) -> Result<EngineOfProcess> {
    crashing = std::make_unique<CrashingWatch>(watch);
    EngineOptions options = {.executor = {.context = 160},
                             .limits = {.step_tokens = 64, .max_sequences = 16, .max_waiting = 64},
                             .watch = crashing.get()};
    EngineOfProcess made;
    TRY(made.engine, Engine::create(*tiny->model, *tiny->backend, options));
    made.model = tiny;
    made.fingerprint = "tiny";
    made.parameters = tiny->model->parameters();
    return made;
  };
  return run_engine_child(load, make).ok() ? 0 : 1;
}

}  // namespace millrace
