// The check behind "a row never depends on its neighbours": a prompt is run through the model in many ways that must
// not matter (in one pass, token by token, in chunks, alone, beside other sequences whose pages lie among its own), and
// the logits of every position must come out the same to the last bit. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/token.h"
#include "engine/executor.h"

namespace millrace {

struct CacheWay {
  std::string name;      // "chunks of 7, beside 3 others"
  int32_t chunk = 0;     // tokens a step; 0: all
  bool crowded = false;  // beside other sequences, pages shuffled
  bool planted = false;  // a stored bit is flipped half way, which must show
};

// Every chunking the contract names, alone and in a crowd: the first is the plain pass others are compared with.
std::vector<CacheWay> cache_ways(int32_t tokens, int32_t page_tokens, bool plant);

struct CacheOutcome {
  uint64_t hash = 0;           // of the logits of all positions, bit for bit
  std::vector<uint64_t> rows;  // of each position
};

// What an executor must hold for prompts of so many tokens.
ExecutorOptions cache_check_options(int32_t tokens, const KvForm& kv, int32_t page_tokens);

CacheOutcome run_way(Executor& executor, std::span<const Token> prompt, const CacheWay& way);

// The first position whose logits differ; -1: none.
int32_t first_difference(const CacheOutcome& expected, const CacheOutcome& found);

}  // namespace millrace
