// What every file of checks adds to, and how a check is written: a Scene has the device and the reference side by side,
// a Verdict gathers what was compared. One thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "eval/ops/check.h"
#include "eval/ops/rig.h"

namespace millrace {

class Verdict {
 public:
  Verdict(std::string name, double allowed, bool plant) : plant_(plant) {
    line_.name = std::move(name);
    line_.allowed = allowed;
  }
  // Rows near enough to what is right. `found` goes into the hash.
  void close(Numbers found, const Numbers& right, const std::string& what);
  void close(Numbers found, const Numbers& right, double allowed, const std::string& what);
  // Rows equal to the bit, except that `found` may have been rounded to a 16-bit form.
  void same(const Numbers& found, const Numbers& expected, const std::string& what, bool rounded = false);
  void expect(bool fine, const std::string& what);
  // Into the hash, though only some of it is compared with what is right.
  void hash(const Numbers& found);
  void unsupported(const std::string& why) { line_.unsupported = why; }
  OpsLine end(const Rig& rig);

 private:
  void fail(const std::string& what) {
    if (line_.first.empty()) line_.first = what;
  }
  OpsLine line_;
  bool plant_;
};

struct Scene {
  Rig& device;
  Rig& reference;
  bool reduced;  // activations have 16 bits or fewer
  bool plant;
};

// Of an operation on rows: all kJudgedRows of them against the reference, and some by themselves. `run` takes a rig and
// which rows, and gives what they became.
inline constexpr int32_t kJudgedRows = 70;
template <class F>
void judge_rows(Scene& scene, Verdict& verdict, const std::string& what, F&& run) {
  const Numbers all = run(scene.device, 0, kJudgedRows);
  verdict.close(all, run(scene.reference, 0, kJudgedRows), what);
  for (const int32_t count : {1, 2, 9, 33})
    verdict.same(run(scene.device, 7, count), all.some(7, count),
                 fmt::format("{}: {} rows by themselves", what, count));
}

struct OpsCheck {
  std::string name;
  double allowed;
  std::function<void(Scene&, Verdict&)> run;
  bool f16_first = false;  // see Rig::open
};

// Each file's.
void add_product_checks(std::vector<OpsCheck>& checks, double allowed);
void add_row_checks(std::vector<OpsCheck>& checks);
void add_attention_checks(std::vector<OpsCheck>& checks, double allowed, bool apart);
void add_layer_checks(std::vector<OpsCheck>& checks, double allowed);
void add_expert_checks(std::vector<OpsCheck>& checks, double allowed);
void add_head_checks(std::vector<OpsCheck>& checks, double allowed);
void add_delta_checks(std::vector<OpsCheck>& checks);
void add_choice_checks(std::vector<OpsCheck>& checks);
void add_state_checks(std::vector<OpsCheck>& checks);
void add_finish_checks(std::vector<OpsCheck>& checks, double allowed, bool apart);
void add_pair_checks(std::vector<OpsCheck>& checks, double allowed);
// Sizes at which kernels go other ways than at the ones above; too slow for every run on a CPU.
void add_large_product_checks(std::vector<OpsCheck>& checks, double allowed);
void add_large_attention_checks(std::vector<OpsCheck>& checks, double allowed, bool apart);
void add_large_choice_checks(std::vector<OpsCheck>& checks);

}  // namespace millrace
