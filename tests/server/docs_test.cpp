// docs/api.md has the table of fields that the server checks with. MILLRACE_UPDATE_DOCS=1 writes it there.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "server/openai/bodies.h"

namespace millrace {
namespace {

TEST(Docs, HaveTheTableThatIsChecked) {
  const std::filesystem::path path = std::filesystem::path(MILLRACE_SOURCE_DIR) / "docs/api.md";
  std::string text = read_file(path).value();
  for (const auto& [name, kind] : {std::pair{"chat", kChat}, std::pair{"completion", kCompletion}}) {
    const std::string begin = fmt::format("<!-- {} fields -->\n", name);
    const size_t from = text.find(begin);
    ASSERT_NE(from, std::string::npos) << name;
    const size_t start = from + begin.size(), end = text.find("<!-- end -->", start);
    ASSERT_NE(end, std::string::npos);
    const std::string table = "\n" + schema_markdown(openai_bodies(), kind) + "\n";
    if (std::getenv("MILLRACE_UPDATE_DOCS") != nullptr) {
      text.replace(start, end - start, table);
    } else {
      EXPECT_EQ(text.substr(start, end - start), table) << "run this test with MILLRACE_UPDATE_DOCS=1";
    }
  }
  if (std::getenv("MILLRACE_UPDATE_DOCS") == nullptr) return;
  auto file = AtomicFile::create(path).value();
  ASSERT_TRUE(file.write(text).ok());
  ASSERT_TRUE(file.commit().ok());
}

}  // namespace
}  // namespace millrace
