// The cache and attention: every kind of it against the reference, and a row's bits whatever chunks, steps, pages and
// sequences it is computed among.
#include <fmt/format.h>

#include "eval/ops/sequences.h"

namespace millrace {
namespace {

const std::vector<AttentionKind>& kinds() {
  static const std::vector<AttentionKind> all = {
      {"four queries a key, 64 wide", 12, 3, 64, 64, 16},
      {"one key for all, 128 wide", 8, 1, 128, 128, 32},
      {"as many keys, 128 wide", 4, 4, 128, 128, 64},
      {"80 wide", 4, 4, 80, 80, 16},
      {"256 wide", 4, 2, 256, 256, 16},
      {"unlike keys and values", 6, 2, 24, 40, 8},
      {"a window", 8, 2, 64, 64, 16, 37},
      {"a window of more than a chunk", 8, 2, 128, 128, 16, 150},
      {"capped scores", 4, 2, 64, 64, 16, 0, 5},
      {"slopes", 6, 3, 64, 64, 16, 0, 0, true},
      {"sinks and a window", 16, 2, 64, 64, 16, 100, 0, false, true},
      {"sinks, 128 wide", 8, 1, 128, 128, 16, 0, 0, false, true},
      {"sinks, 80 wide", 4, 1, 80, 80, 16, 0, 0, false, true},
      {"a grid of positions", 8, 2, 64, 64, 16, 0, 0, false, false, 96},
      {"a grid and a window, 80 wide", 4, 2, 80, 80, 16, 70, 0, false, false, 128},
      {"latents of 576, values of 512", 16, 1, 576, 0, 16, 0, 0, false, false, 0, 512},
      {"latents of 288, values of 256, a window", 40, 1, 288, 0, 32, 100, 0, false, true, 0, 256},
      {"a window and 4 kept", 8, 2, 64, 64, 16, 37, 0, false, false, 0, 0, 4},
      {"a window and 100 kept, 128 wide", 4, 4, 128, 128, 32, 60, 0, false, false, 0, 0, 100},
      {"a window and 20 kept, 80 wide, slopes", 4, 2, 80, 80, 8, 50, 0, true, false, 0, 0, 20, true},
      {"a window and 9 kept, sinks, capped", 16, 2, 64, 64, 16, 130, 5, false, true, 0, 0, 9},
      {"latents of 80, values of 64", 40, 1, 80, 0, 16, 0, 0, false, false, 0, 64},
  };
  return all;
}

const std::vector<AttentionKind>& kinds_of_texts() {
  static const std::vector<AttentionKind> all = {
      {"all that is visible, 64 wide", 8, 2, 64, 64, 16},
      {"all that is visible, 96 wide", 4, 4, 96, 96, 16},
      {.name = "a window both ways",
       .heads = 4,
       .kv_heads = 4,
       .k_dim = 64,
       .v_dim = 64,
       .page_tokens = 32,
       .window = 40,
       .ahead = 39},
  };
  return all;
}

// What each row of a step must be.
Numbers expected(const Numbers& whole, std::span<const StepPiece> pieces) { return whole.picked(positions_of(pieces)); }

void check_kind(const AttentionKind& kind, const KvForm& form, Scene& scene, Verdict& verdict) {
  constexpr int32_t kTokens = 330;
  KvSequences right(scene.reference, kind, form, kTokens, 7), device(scene.device, kind, form, kTokens, 7);
  if (!scene.device.failure().empty()) return;
  const StepPiece all = {0, 0, kTokens};
  const Numbers whole = device.step({&all, 1});
  verdict.close(whole, right.step({&all, 1}), "a prompt");
  auto same = [&](const std::vector<StepPiece>& pieces, const std::string& what) {
    verdict.same(device.step(pieces), expected(whole, pieces), what);
  };
  int32_t at = 0;
  for (const int32_t rows : {110, 1, 1, 16, 1, 126, 1, 1, 70, 1, 1, 1}) {
    same({{1, at, rows}}, fmt::format("positions {} to {} in a step", at, at + rows - 1));
    at += rows;
  }
  same({{1, 0, 1}, {2, 0, 64}, {3, 0, 127}, {4, 0, 128}, {5, 0, 300}}, "five prompts together");
  same({{1, 1, 1}, {2, 64, 1}, {3, 127, 1}, {4, 128, 1}, {5, 300, 1}}, "five single rows together");
  same({{1, 2, 40}, {2, 65, 1}, {3, 128, 2}, {4, 129, 1}, {5, 301, 20}}, "single rows beside longer pieces");
  same({{5, 321, 1}}, "a single row");
}

// Rows that see beyond themselves: whole texts of an encoder, and windows of a text that are computed together.
void check_all_visible(const AttentionKind& kind, const KvForm& form, Scene& scene, Verdict& verdict) {
  constexpr int32_t kTokens = 330;
  KvSequences right(scene.reference, kind, form, kTokens, 8), device(scene.device, kind, form, kTokens, 8);
  if (!scene.device.failure().empty()) return;
  const StepPiece all = {0, 0, kTokens, kTokens};
  verdict.close(device.step({&all, 1}), right.step({&all, 1}), "a text");
  std::vector<StepPiece> texts;
  for (const int32_t rows : {1, 64, 127, 128, 300})
    texts.push_back({static_cast<int32_t>(texts.size()) + 1, 0, rows, rows});
  auto each_alone = [&](std::span<const StepPiece> pieces, const std::string& what) {
    const Numbers together = device.step(pieces);
    int64_t row = 0;
    for (const StepPiece& piece : pieces) {
      verdict.same(device.step({&piece, 1}), together.some(row, piece.rows),
                   fmt::format("{}: {} rows from position {} alone", what, piece.rows, piece.begin));
      row += piece.rows;
    }
  };
  each_alone(texts, "five texts together");
  if (kind.ahead > 0) return;
  const StepPiece windows[] = {{1, 1, 31, 32}, {2, 64, 32, 96}, {4, 128, 40, 168}};
  each_alone(windows, "three windows together");
}

}  // namespace

void add_attention_checks(std::vector<OpsCheck>& checks, double allowed, bool apart) {
  const KvForm forms[] = {DType::f32,
                          DType::f16,
                          DType::bf16,
                          DType::i8,
                          DType::f8_e4m3,
                          DType::q4_0,
                          {DType::i8, DType::f16, true},
                          {DType::q4_0, DType::i8, false}};
  for (const KvForm& form : forms) {
    if (apart && form == DType::f32) continue;  // such devices keep 16 bits or fewer
    for (const AttentionKind& kind : kinds()) {
      if (!kind.fits(form)) continue;
      checks.push_back({fmt::format("attend over {}, {}", form.name(), kind.name), allowed,
                        [&kind, form](Scene& s, Verdict& v) { check_kind(kind, form, s, v); }});
    }
    for (const AttentionKind& kind : kinds_of_texts())
      checks.push_back({fmt::format("attend over {}, {}", form.name(), kind.name), allowed,
                        [&kind, form](Scene& s, Verdict& v) { check_all_visible(kind, form, s, v); }});
  }
}

}  // namespace millrace
