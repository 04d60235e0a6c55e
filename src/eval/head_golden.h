// Golden logits of a head (model/heads), stored beside it as golden.safetensors by another implementation. For prompts
// N = 0, 1, 2 ...: N.ids [tokens], N.drafts [n] and N.gaps [n], what it guesses after them and how far apart its two
// largest logits were; for some of them N.features [tokens - 1, feature], streams of the target as it had them, and
// N.logits_all_entries [tokens - 1, vocab] that it made of these. The check computes the same logits from the same
// streams, and has the target compute streams of its own to guess from. One thread.
#pragma once

#include <filesystem>
#include <vector>

#include "eval/golden.h"
#include "model/heads/head.h"

namespace millrace {

struct HeadGolden {
  struct Prompt {
    std::vector<Token> ids, drafts;
    std::vector<float> gaps;
    std::vector<float> features, logits;  // empty: only guesses are stored
  };
  std::vector<Prompt> prompts;
};

bool is_head_golden(const std::filesystem::path& file);
Result<HeadGolden> read_head_golden(const std::filesystem::path& file);

// Guesses are compared up to the first other one, from where on nothing is said about them.
Result<GoldenResult> check_head_golden(const Head& head, Backend& backend, const KvForm& kv, const HeadGolden& golden,
                                       GoldenRule rule);

}  // namespace millrace
