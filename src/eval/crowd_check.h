// The check behind "alone and in a crowd": requests are answered one after the other with nothing else running, then
// all together in an engine that has room for a part of them, so that they are shared, put off, moved out, computed
// again and overlapped. Every answer must have the same tokens. The caller's thread; the engine has its own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace millrace {

struct CrowdSize {
  int requests = 64;
  int parallel = 16;       // running at once
  int prompt = 96;         // tokens, at most
  int tokens = 32;         // of an answer, at most
  int64_t swap_bytes = 0;  // of the host, for the ways that move pages out
  KvForm kv;
  std::vector<AdapterAsk> adapters = {};  // requests have them in turn, one in so many and one none
};

// Prompts of which many begin alike; half of them greedy, half sampled, some with three answers.
std::vector<Request> crowd_requests(const CrowdSize& size, int32_t vocab, uint64_t seed);

// The same requests with every kind of sampler, least lengths, stop tokens and log-probabilities among them, and
// prompts that repeat themselves, so that there is something to guess.
std::vector<Request> sampler_requests(const CrowdSize& size, int32_t vocab, uint64_t seed);

struct CrowdWay {
  std::string name;
  bool alone = false;  // one request after the other, which share nothing
  bool tight = false;  // room for a quarter of what would run at once
  bool swaps = false;  // what is put off is moved to the host's memory; else it is computed again
  bool overlap = true;
  bool priority = false;  // the later half goes first
  bool small_steps = false;
};
// The first is the one others are compared with.
std::vector<CrowdWay> crowd_ways();

using CrowdAnswers = std::map<std::pair<int, int>, std::vector<Token>>;  // of a request and choice
struct CrowdOutcome {
  CrowdAnswers answers;
  Metrics metrics;
};
// Where masks are filled, requests have passes of every kind. heard: how many requests have been answered.
Result<CrowdOutcome> run_crowd(const Model& model, Backend& backend, const CrowdSize& size, const CrowdWay& way,
                               std::vector<Request> requests, const std::function<void(int)>& heard,
                               const DraftOptions& draft = {});

// The first request with another answer; -1: none.
int first_difference(const CrowdAnswers& expected, const CrowdAnswers& found);

}  // namespace millrace
