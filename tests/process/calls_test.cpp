// What an answer may call passes to an engine's process as text, and binds there as it does here.
#include <gtest/gtest.h>

#include "base/file.h"
#include "process/frames.h"
#include "session/bound.h"
#include "session/calls.h"

#if MILLRACE_SESSION_TEXT
namespace millrace {
namespace {

TEST(ProcessCalls, AGrammarOfCallsIsTheSameOnTheOtherSide) {
  const std::filesystem::path root(MILLRACE_SOURCE_DIR);
  LoadChoice choice{.path = root / "models/stories-14m-q8_0.gguf", .weights = false};
  choice.chat_template = read_file(root / "tests/session/data/calls/json.jinja").value();
  auto loaded = LoadedModel::load(choice).value();
  ASSERT_TRUE(loaded->calls().known());
  ToolUse use{.tools = {{.name = "f", .parameters = JsonObject{{"type", "object"}}}, {.name = "g"}}, .required = true};
  Bounds here(*loaded), there(*loaded);
  auto bound = here.bind(calls_source(loaded->calls(), use), {});
  ASSERT_TRUE(bound.ok()) << bound.error().message;

  std::string bytes;
  append_frame(SubmitFrame{.id = 1, .constraint = bound->constraint->source()}, bytes);
  const auto frame = std::get<SubmitFrame>(read_frame(std::string_view(bytes).substr(4)).value());
  auto other = there.constraint(frame.constraint, "");
  ASSERT_TRUE(other.ok()) << other.error().message;

  const std::string text = "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";
  auto a = bound->constraint->start(), b = (*other)->start();
  const std::vector<Token> tokens = loaded->tokenizer()->encode(text).value();
  for (Token token : tokens) {
    const auto mine = bound->constraint->allowed(a), theirs = (*other)->allowed(b);
    ASSERT_TRUE(mine.ok() && theirs.ok());
    EXPECT_EQ((*mine)->words, (*theirs)->words);
    EXPECT_TRUE((*theirs)->has(token));
    EXPECT_FALSE((*other)->ends(b));
    a = bound->constraint->next(a, token);
    b = (*other)->next(b, token);
  }
  EXPECT_TRUE((*other)->ends(b));
}

}  // namespace
}  // namespace millrace
#endif
