#include "plan/hardware.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(Hardware, KnownOnesAreWhole) {
  for (const Hardware& each : known_hardware()) {
    EXPECT_GT(each.memory, each.reserve) << each.name;
    EXPECT_GT(each.ceilings.read_bytes, 1e11) << each.name;
    for (double rate : {each.ceilings.grouped, each.ceilings.f8, each.ceilings.f16, each.ceilings.bf16,
                        each.ceilings.f32, each.ceilings.attend})
      EXPECT_GT(rate, 1e12) << each.name;
    EXPECT_EQ(find_hardware(each.name)->description, each.description);
  }
}

TEST(Hardware, UnknownNameSaysWhatThereIs) {
  const auto found = find_hardware("h900");
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().message.find("h100"), std::string::npos);
  EXPECT_NE(found.error().message.find(".json"), std::string::npos);
}

TEST(Hardware, FromJson) {
  const auto machine = parse_hardware(R"({"name":"toy","memory_bytes":4e9,"reserve_bytes":0,
      "read_bytes_per_second":1e11,"f32_operations_per_second":1e12,"bf16_operations_per_second":2e12})",
                                      "toy.json");
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  EXPECT_EQ(machine->memory, 4000000000);
  EXPECT_EQ(machine->ceilings.grouped, 2e12);
  EXPECT_EQ(machine->ceilings.attend, 1e12);
  for (std::string_view bad :
       {"[]", "{}", R"({"memory_bytes":-1})",
        R"({"memory_bytes":4e9,"read_bytes_per_second":0,"f32_operations_per_second":1})",
        R"({"memory_bytes":4e9,"reserve_bytes":5e9,"read_bytes_per_second":1,"f32_operations_per_second":1})",
        R"({"memory_bytes":"much"})", "nonsense"}) {
    EXPECT_FALSE(parse_hardware(bad, "x").ok()) << bad;
  }
}

}  // namespace
}  // namespace millrace
