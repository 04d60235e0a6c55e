#include "eval/ops/check.h"

#include <bit>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "backend/reference/reference.h"
#include "eval/ops/scene.h"
#include "tensor/half.h"

namespace millrace {
namespace {

// What a step of 16-bit activations, or of int8 groups on a CPU, may cost.
constexpr double kAllowedApart = 1e-2, kAllowedHere = 2.5e-2;

void mix(uint64_t& hash, std::span<const float> values) {
  for (const float value : values) {
    hash ^= std::bit_cast<uint32_t>(value);
    hash *= 0x100000001B3ull;
    hash ^= hash >> 29;
  }
}

double error_of(std::span<const float> found, std::span<const float> right) {
  double wrong = 0, size = 0;
  for (size_t i = 0; i < right.size(); ++i) {
    wrong += std::pow(double{found[i]} - right[i], 2);
    size += std::pow(double{right[i]}, 2);
  }
  const double error = std::sqrt(wrong) / std::max(std::sqrt(size), 1e-30);
  return std::isnan(error) ? INFINITY : error;
}

bool equal(float found, float expected, bool rounded) {
  if (std::bit_cast<uint32_t>(found) == std::bit_cast<uint32_t>(expected) || found == expected) return true;
  return rounded && (found == bf16_to_f32(f32_to_bf16(expected)) || found == f16_to_f32(f32_to_f16(expected)));
}

std::span<const float> row_of(const Numbers& numbers, int64_t row) {
  return {numbers.row(row), static_cast<size_t>(numbers.cols)};
}

}  // namespace

void Verdict::close(Numbers found, const Numbers& right, const std::string& what) {
  close(std::move(found), right, line_.allowed, what);
}

void Verdict::close(Numbers found, const Numbers& right, double allowed, const std::string& what) {
  ++line_.cases;
  if (found.rows != right.rows || found.cols != right.cols) return fail(what + ": another shape");
  if (plant_ && !found.all.empty()) found.all.back() = 1e6f;
  plant_ = false;
  mix(line_.hash, found.all);
  for (int64_t r = 0; r < right.rows; ++r) {
    const double error = error_of(row_of(found, r), row_of(right, r));
    line_.error = std::max(line_.error, error / allowed * line_.allowed);
    if (error <= allowed) continue;
    int64_t worst = 0;
    for (int64_t i = 0; i < right.cols; ++i) {
      const float here = std::abs(found.row(r)[i] - right.row(r)[i]);
      if (!(here <= std::abs(found.row(r)[worst] - right.row(r)[worst]))) worst = i;
    }
    fail(fmt::format("{}: row {} of {} is off by {:.2g} (allowed {:.2g}); number {} of {} is {}, not {}", what, r,
                     right.rows, error, allowed, worst, right.cols, found.row(r)[worst], right.row(r)[worst]));
  }
}

void Verdict::same(const Numbers& found, const Numbers& expected, const std::string& what, bool rounded) {
  ++line_.cases;
  if (found.rows != expected.rows || found.cols != expected.cols) return fail(what + ": another shape");
  for (int64_t r = 0; r < expected.rows; ++r) {
    int64_t first = -1, count = 0;
    for (int64_t i = 0; i < expected.cols; ++i) {
      if (equal(found.row(r)[i], expected.row(r)[i], rounded)) continue;
      if (first < 0) first = i;
      ++count;
    }
    if (count == 0) continue;
    ++line_.different;
    fail(fmt::format("{}: {} of {} numbers of row {} of {} have other bits; number {} is {:.9g}, not {:.9g}", what,
                     count, expected.cols, r, expected.rows, first, found.row(r)[first], expected.row(r)[first]));
  }
}

void Verdict::expect(bool fine, const std::string& what) {
  ++line_.cases;
  if (plant_) fine = false;
  plant_ = false;
  if (!fine) fail(what);
}

void Verdict::hash(const Numbers& found) { mix(line_.hash, found.all); }

OpsLine Verdict::end(const Rig& rig) {
  if (!rig.failure().empty()) line_.first = rig.failure();
  if (line_.cases == 0 && line_.unsupported.empty()) fail("nothing was compared");
  return line_;
}

namespace {

std::vector<OpsCheck> all_checks(bool apart, bool large) {
  std::vector<OpsCheck> checks;
  const double allowed = apart ? kAllowedApart : kAllowedHere;
  add_row_checks(checks);
  add_product_checks(checks, allowed);
  add_attention_checks(checks, allowed, apart);
  add_layer_checks(checks, 3 * allowed);  // four products in a row
  add_expert_checks(checks, allowed);
  add_head_checks(checks, allowed);
  add_delta_checks(checks);
  add_choice_checks(checks);
  add_state_checks(checks);
  add_finish_checks(checks, allowed, apart);
  add_pair_checks(checks, allowed);
  if (!large) return checks;
  add_large_product_checks(checks, allowed);
  add_large_attention_checks(checks, allowed, apart);
  add_large_choice_checks(checks);
  return checks;
}

}  // namespace

Result<std::vector<OpsLine>> check_ops(const OpsCheckOptions& options) {
  TRY(auto looked_at, options.open());
  const bool apart = looked_at->apart();
  looked_at.reset();
  std::vector<OpsLine> lines;
  for (const OpsCheck& check : all_checks(apart, options.large || apart)) {
    if (check.name.find(options.only) == std::string::npos) continue;
    TRY(auto backend, options.open());
    TRY(auto device, Rig::open(std::move(backend), check.f16_first));
    TRY(auto reference, Rig::open(make_reference_backend()));
    Scene scene = {*device, *reference, apart, options.plant};
    Verdict verdict(check.name, check.allowed, options.plant);
    check.run(scene, verdict);
    device->finish();
    lines.push_back(verdict.end(*device));
    if (options.told) options.told(lines.back());
  }
  if (lines.empty()) return error(Code::not_found, "no check's name contains '{}'", options.only);
  return lines;
}

}  // namespace millrace
