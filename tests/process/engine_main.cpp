// The tests, and the engine that some of them start as a process of its own: this program again.
#include <gtest/gtest.h>

#include <string_view>

#include "process/planted_engine.h"

int main(int count, char** words) {
  if (count > 1 && std::string_view(words[1]) == "engine") return millrace::be_planted_engine(words[2]);
  testing::InitGoogleTest(&count, words);
  return RUN_ALL_TESTS();
}
