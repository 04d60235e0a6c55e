// What is brought of a row of logits: the largest number's place, and shortlists that lead the sampler to the token it
// finds in the whole row.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include <fmt/format.h>

#include "backend/shortlist.h"
#include "engine/sampler.h"
#include "eval/ops/scene.h"

namespace millrace {
namespace {

constexpr int32_t kLogitRows = 24;

struct Logits {
  const char* name;
  void (*fill)(Chance&, Numbers&);
};
void normals(Chance& chance, Numbers& rows, float deviation) {
  for (float& x : rows.all) x = chance.normal(deviation);
}
const Logits kLogits[] = {
    {"flat", [](Chance& chance, Numbers& rows) { normals(chance, rows, 1); }},
    {"like a model's",
     [](Chance& chance, Numbers& rows) {
       normals(chance, rows, 2.5f);
       for (int64_t r = 0; r < rows.rows; ++r) {
         float top = 22;
         for (int i = 0; i < 60; ++i, top -= 0.1f * static_cast<float>(chance.below(5)))
           rows.row(r)[chance.below(static_cast<int32_t>(rows.cols))] = top;
       }
     }},
    {"with ties",
     [](Chance& chance, Numbers& rows) {
       for (float& x : rows.all) x = std::round(chance.normal(12)) / 4;
     }},
    {"mostly impossible",
     [](Chance& chance, Numbers& rows) {
       for (float& x : rows.all) x = chance.below(1000) != 0 ? -INFINITY : chance.normal(3);
       for (int64_t r = 0; r < rows.rows; ++r) rows.row(r)[7] = 1;
     }},
    {"with one far above",
     [](Chance& chance, Numbers& rows) {
       normals(chance, rows, 1);
       for (int64_t r = 0; r < rows.rows; ++r) rows.row(r)[rows.cols / 3] = 60;
     }},
    {"all equal", [](Chance&, Numbers& rows) { std::ranges::fill(rows.all, 1.5f); }},
};

struct Setting {
  const char* name;
  Sampling sampling;
};
const Setting kSettings[] = {
    {"temperature 1", {.temperature = 1}},
    {"temperature 0.7", {.temperature = 0.7}},
    {"temperature 100", {.temperature = 100}},
    {"temperature 1e-4", {.temperature = 1e-4}},
    {"top-k 40", {.temperature = 0.8, .top_k = 40}},
    {"top-k 500", {.temperature = 1, .top_k = 500}},
    {"top-k 40, top-p 0.95, min-p 0.05", {.temperature = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.05}},
    {"top-p 0.9", {.temperature = 1, .top_p = 0.9}},
    {"top-p 0.95, min-p 0.05", {.temperature = 1, .top_p = 0.95, .min_p = 0.05}},
    {"min-p 0.1", {.temperature = 1.5, .min_p = 0.1}},
    {"repetition 1.1, top-k 40", {.temperature = 0.8, .top_k = 40, .repetition = 1.1}},
    {"greedy, presence 0.5", {.temperature = 0, .presence = 0.5}},
};

void check_best(std::span<const int32_t> vocabs, Scene& scene, Verdict& verdict) {
  Chance chance(401);
  for (const int32_t vocab : vocabs) {
    Numbers rows(kLogitRows, vocab, chance);
    rows.row(1)[vocab - 1] = 99;
    for (const int32_t at : {17, 500, 999}) rows.row(2)[at] = 50;  // the lowest of equals
    std::fill_n(rows.row(3), vocab, -INFINITY);
    rows.row(4)[5] = std::numeric_limits<float>::quiet_NaN();
    auto run = [&](Rig& rig) {
      rig.begin(kLogitRows);
      std::vector<int32_t> best(kLogitRows, -9);
      rig.ops().fetch(rig.bring(rows), nullptr, best.data());
      return best;
    };
    const std::vector<int32_t> found = run(scene.device), right = run(scene.reference);
    for (int32_t r = 0; r < kLogitRows; ++r) {
      const auto i = static_cast<size_t>(r);
      verdict.expect(found[i] == right[i],
                     fmt::format("{} logits, row {}: place {}, not {}", vocab, r, found[i], right[i]));
    }
  }
}

// Pinned or not, memory that the backend's results may be brought to.
ShortlistBatch batch_of(Rig& rig) {
  auto given = rig.backend().allocate_results(ShortlistBatch::bytes(kLogitRows));
  if (!given.ok()) return {};
  std::byte* at = *given;
  ShortlistBatch batch;
  batch.tokens = reinterpret_cast<ShortlistToken*>(at);
  at += kLogitRows * kShortlistTokens * static_cast<int64_t>(sizeof(ShortlistToken));
  batch.asks = reinterpret_cast<ShortlistAsk*>(at);
  at += kLogitRows * static_cast<int64_t>(sizeof(ShortlistAsk));
  batch.found = reinterpret_cast<Shortlisted*>(at);
  return batch;
}

void check_settings(Scene& scene, Verdict& verdict, const ShortlistBatch& batch, Numbers& rows, const char* logits,
                    Chance& chance) {
  const auto vocab = static_cast<int32_t>(rows.cols);
  SamplerScratch scratch(vocab);
  Numbers whole(kLogitRows, vocab);
  for (const Setting& setting : kSettings) {
    std::vector<Token> context;
    for (int i = 0; i < 70; ++i) context.push_back(chance.below(vocab));
    std::vector<Sampler> samplers;
    for (int32_t i = 0; i < kLogitRows; ++i) {
      Sampling sampling = setting.sampling;
      sampling.seed = chance.bits();
      samplers.push_back(Sampler::create(sampling, vocab, static_cast<uint32_t>(i)).value());
      batch.asks[i] = samplers.back().shortlist_ask(vocab, context.size(), {});
    }
    scene.device.begin(kLogitRows);
    const Tensor on_device = scene.device.bring(rows);
    const std::string failure = scene.device.ops().fetch_shortlist(on_device, batch, whole.all.data());
    verdict.expect(failure.empty(), failure);
    for (int32_t i = 0; i < kLogitRows; ++i) {
      Sampler& sampler = samplers[static_cast<size_t>(i)];
      const auto token = sampler.sample_shortlist(batch.asks[i], batch.found[i], context, scratch);
      const auto right =
          sampler.sample(std::span<const float>(rows.row(i), static_cast<size_t>(vocab)), context, scratch);
      if (!token || !right.ok()) continue;  // the whole row would be asked for
      verdict.expect(*token == *right, fmt::format("{} logits {}, {}, row {}: token {}, not {}", vocab, logits,
                                                   setting.name, i, *token, *right));
    }
  }
}

void check_shortlists(std::span<const int32_t> vocabs, Scene& scene, Verdict& verdict) {
  Chance chance(402);
  const ShortlistBatch batch = batch_of(scene.device);
  verdict.expect(batch.asks != nullptr, "no memory for shortlists");
  if (batch.asks == nullptr) return;
  for (const int32_t vocab : vocabs) {
    for (const Logits& logits : kLogits) {
      Numbers rows(kLogitRows, vocab);
      logits.fill(chance, rows);
      check_settings(scene, verdict, batch, rows, logits.name, chance);
    }
  }
}

}  // namespace

void add_choice_checks(std::vector<OpsCheck>& checks) {
  static constexpr int32_t kBest[] = {1000, 4096, 50257}, kShortlisted[] = {1000, 32000, 151936};
  checks.push_back({"the best token", 0, [](Scene& s, Verdict& v) { check_best(kBest, s, v); }});
  checks.push_back({"shortlists", 0, [](Scene& s, Verdict& v) { check_shortlists(kShortlisted, s, v); }});
}

void add_large_choice_checks(std::vector<OpsCheck>& checks) {
  static constexpr int32_t kBest[] = {128256, 262144}, kShortlisted[] = {128256};
  checks.push_back({"the best token of many", 0, [](Scene& s, Verdict& v) { check_best(kBest, s, v); }});
  checks.push_back({"shortlists of many", 0, [](Scene& s, Verdict& v) { check_shortlists(kShortlisted, s, v); }});
}

}  // namespace millrace
