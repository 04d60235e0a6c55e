// What stands beside speeds: limits, why they are passed, and bytes.
#include <gtest/gtest.h>

#include "apps/bench/rows.h"
#include "apps/plan/check.h"
#include "apps/plan/explain_report.h"
#include "apps/plan/report.h"

namespace millrace::apps {
namespace {

const Machine kMachine = {.processor = "x",
                          .threads = 1,
                          .read_bytes = 1e9,
                          .int8_operations = 4e9,
                          .f32_operations = 2e9,
                          .noise = {.read = 0.05, .int8 = 0.01, .f32 = 0.03}};

Floor by_memory(double seconds) { return {.seconds = seconds, .memory_seconds = seconds, .bytes = 1e9 * seconds}; }
Floor by_arithmetic(double seconds) { return {.seconds = seconds, .compute_seconds = seconds, .flops = 2e9 * seconds}; }

StepRow step_row(const Floor& floor, double seconds, int64_t bytes) {
  return {.bytes = bytes,
          .result = {.test = {.generated = 1}, .seconds = {seconds}, .passes = {}, .floor = floor},
          .machine = kMachine,
          .stolen = 0.25};
}

OpRow op_row(const Floor& floor, double seconds, int64_t footprint) {
  return {.result = {.test = {}, .seconds = {seconds}, .records = {}, .floor = floor},
          .footprint = footprint,
          .machine = kMachine,
          .stolen = 0.25};
}

std::string_view text_of(const JsonObject& row, std::string_view key) { return row.at(key).as_string(); }

template <class Row>
void says_why(Row (*make)(const Floor&, double, int64_t)) {
  const int64_t few = 1 << 20, many = int64_t{1} << 32;
  const JsonObject below = row_json(make(by_memory(1), 2, few));
  EXPECT_TRUE(below.at("over_limit").is_null());
  EXPECT_EQ(below.at("of_limit"), Json(0.5));
  EXPECT_EQ(below.at("stolen"), Json(0.25));
  EXPECT_EQ(below.at("ceiling_read_noise"), Json(0.05));
  EXPECT_EQ(below.at("ceiling_f32_noise"), Json(0.03));
  EXPECT_EQ(below.at("ceiling_noise"), Json(0.05)) << "of the noisiest";
  EXPECT_TRUE(below.at("ceiling_bf16_noise").is_null()) << "nobody knows it";
  const JsonObject cached = row_json(make(by_memory(3), 2, few)), memory = row_json(make(by_memory(3), 2, many)),
                   arithmetic = row_json(make(by_arithmetic(3), 2, few));
  EXPECT_EQ(cached.at("of_limit"), Json(1.5));
  EXPECT_NE(text_of(cached, "over_limit").find("cache"), std::string::npos);
  EXPECT_NE(text_of(cached, "over_limit").find("5 % noise"), std::string::npos);
  EXPECT_NE(text_of(memory, "over_limit").find("twice"), std::string::npos);
  EXPECT_EQ(text_of(memory, "bound"), "memory");
  EXPECT_EQ(text_of(arithmetic, "over_limit").find("cache"), std::string::npos);
  EXPECT_NE(text_of(arithmetic, "over_limit").find("3 % noise"), std::string::npos);
  EXPECT_EQ(text_of(arithmetic, "bound"), "compute");
}

TEST(BenchRows, OverTheLimitSayWhy) { says_why(step_row); }
TEST(BenchRows, OfOneOpToo) { says_why(op_row); }

TEST(BenchRows, AreExplainedByTheirOwnMachine) {
  StepRow quiet = step_row(by_memory(3), 2, int64_t{1} << 32), busy = quiet;
  busy.machine.noise.read = 0.4;
  EXPECT_NE(why_over_limit(quiet).find("5 % noise"), std::string::npos);
  EXPECT_NE(why_over_limit(busy).find("40 % noise"), std::string::npos);
}

TEST(ExplainReport, TellsWhichLimitsWerePassed) {
  ExplainReport report = {.machine = kMachine, .weights = 1 << 20};
  report.what.decode = {{.name = "linear", .seconds = 2, .floor = by_memory(1)}};
  report.what.decode_floor = by_memory(1);
  report.what.prefill = {{.name = "linear", .seconds = 2, .floor = by_arithmetic(2)}};
  EXPECT_FALSE(passed_limits(report).any());
  EXPECT_TRUE(explanation_json(report).as_object().at("over_limit").is_null());
  report.what.prefill[0].seconds = 1;
  EXPECT_TRUE(passed_limits(report).compute);
  EXPECT_FALSE(passed_limits(report).memory);
  const Json json = explanation_json(report);
  EXPECT_EQ(std::string_view(json.as_object().at("over_limit").as_string()).find("cache"), std::string::npos)
      << "no cache makes arithmetic faster";
  report.decode = {{.length = 64, .seconds = 1, .floor = by_memory(2)}};
  EXPECT_TRUE(passed_limits(report).memory) << "of lengths that were measured too";
  report.stolen = 0.5;
  EXPECT_EQ(explanation_json(report).as_object().at("stolen"), Json(0.5));
}

TEST(PlanReport, NamesTheArithmeticThatIsThere) {
  EXPECT_EQ(arithmetic_text({.bf16 = 660e9, .f32 = 166e9}), "660 G op/s in bf16");
  EXPECT_EQ(arithmetic_text({.bf16 = 79.3e9, .f32 = 79.3e9}), "79.3 G op/s in float32");
}

TEST(PlanCheck, BytesAreForPeople) {
  EXPECT_EQ(memory_text(67108864), "64 MiB");
  EXPECT_EQ(memory_text(-1536), "-1.50 KiB");
  EXPECT_EQ(memory_text(0), "0 B");
}

}  // namespace
}  // namespace millrace::apps
