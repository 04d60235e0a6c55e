// The docs have the tables of fields that the server checks with. MILLRACE_UPDATE_DOCS=1 writes them there.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "server/anthropic/bodies.h"
#include "server/llama_cpp/bodies.h"
#include "server/ollama/bodies.h"
#include "server/openai/bodies.h"
#include "server/responses/bodies.h"

namespace millrace {
namespace {

struct Documented {
  const char* file;
  const char* name;
  const Table& (*table)();
  unsigned kind;
};
constexpr Documented kTables[] = {
    {"docs/api.md", "chat", openai_bodies, kChat},
    {"docs/api.md", "completion", openai_bodies, kCompletion},
    {"docs/interfaces.md", "messages", anthropic_bodies, kMessagesBody},
    {"docs/interfaces.md", "responses", responses_bodies, kResponse},
    {"docs/interfaces.md", "ollama chat", ollama_bodies, kOllamaChat},
    {"docs/interfaces.md", "ollama generate", ollama_bodies, kOllamaGenerate},
    {"docs/interfaces.md", "completion of llama.cpp", llama_bodies, kLlamaCompletion},
    {"docs/interfaces.md", "infill", llama_bodies, kLlamaInfill},
};

TEST(Docs, HaveTheTablesThatAreChecked) {
  const bool update = std::getenv("MILLRACE_UPDATE_DOCS") != nullptr;
  for (const Documented& one : kTables) {
    const std::filesystem::path path = std::filesystem::path(MILLRACE_SOURCE_DIR) / one.file;
    std::string text = read_file(path).value();
    const std::string begin = fmt::format("<!-- {} fields -->\n", one.name);
    const size_t from = text.find(begin);
    ASSERT_NE(from, std::string::npos) << one.name;
    const size_t start = from + begin.size(), end = text.find("<!-- end -->", start);
    ASSERT_NE(end, std::string::npos);
    const std::string table = "\n" + schema_markdown(one.table(), one.kind) + "\n";
    if (!update) {
      EXPECT_EQ(text.substr(start, end - start), table) << "run this test with MILLRACE_UPDATE_DOCS=1";
      continue;
    }
    text.replace(start, end - start, table);
    auto file = AtomicFile::create(path).value();
    ASSERT_TRUE(file.write(text).ok());
    ASSERT_TRUE(file.commit().ok());
  }
}

}  // namespace
}  // namespace millrace
