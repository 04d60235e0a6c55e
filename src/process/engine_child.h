// The engine's side of a process of its own: takes requests from a socket, tells what becomes of them, and keeps the
// shared page up to date. It ends when the server's end of the socket does. Main thread of that process.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "process/frames.h"
#include "process/shared_page.h"

namespace millrace {

// These are given to the process at these numbers; the third is a socket that carries open files, the last, which may
// be missing, one to a spare (spare.h).
inline constexpr int kEngineSocket = 3, kEngineSharedFile = 4, kEngineFiles = 5, kEngineSpare = 6;

struct EngineOfProcess {
  std::shared_ptr<void> model;  // whatever the engine needs to live
  std::unique_ptr<Engine> engine;
  Identity pages, tokens, weights;  // as ReadyFrame has them
  KvForm kv;
  std::vector<FileState> files = {};
  int64_t parameters = 0;  // of the model; 0: not known
  // A constraint from its source.
  std::function<Result<std::shared_ptr<Constraint>>(const std::string& source, const std::string& tenant)> constraint;
};

// Nanoseconds that a step of so many tokens may take while none was measured: what a machine needs at most that does a
// thousand million operations a second, and a beginning; a machine that swaps or sets up a network is not hung.
int64_t allowed_untried(int64_t parameters, int64_t tokens);

// `load` brings the model into memory and says whether the process may be copied then; `make` is given what the
// engine's options take as watch, and is called in copies too. Returns when the server is gone; the error if the engine
// could not be made, which the server is told too.
Result<void> run_engine_child(const std::function<Result<bool>()>& load,
                              const std::function<Result<EngineOfProcess>(EngineWatch& watch)>& make);

// The server is told that there will be no engine, and why.
void tell_engine_failed(const Error& why);

}  // namespace millrace
