// Every golden damaged at random places, the same ones each time: settings that become other numbers, other kinds or
// nothing, headers and weights with other bytes, files cut short. It is refused with a sentence, or it runs.
#include <random>
#include <sstream>

#include "model/rig.h"
#include "tensor/files.h"

namespace millrace {
namespace {

using test::Runner;

std::string content_of(const std::filesystem::path& path) {
  return (std::stringstream() << std::ifstream(path, std::ios::binary).rdbuf()).str();
}

class Damage {
 public:
  explicit Damage(uint32_t seed) : random_(seed) {}

  // One setting becomes something else.
  std::string settings(const std::string& text) {
    JsonObject object = parse_json(text).value().get_object();
    auto at = object.begin();
    std::advance(at, below(object.size()));
    const std::string key(at->key());
    Json& value = object[key];
    static const Json kOthers[] = {0, -1, 1, 3, 64, 1 << 30, INT64_MAX, 1e300, 0.5, true, "text", nullptr, JsonArray{}};
    switch (below(4)) {
      case 0:
        object.erase(key);
        break;
      case 1:
        if (value.is_int64()) value = value.get_int64() + static_cast<int64_t>(below(5)) - 2;
        break;
      default:
        value = kOthers[below(std::size(kOthers))];
    }
    return to_text(object);
  }

  // Some bytes of the header or behind it become others, or the end is missing.
  std::string weights(std::string bytes) {
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    const size_t kind = below(8);
    if (kind == 0) return bytes.substr(0, below(bytes.size()));
    const bool in_header = kind < 4;
    for (int i = 0; i < (in_header ? 1 : 64); ++i) {
      const size_t place = in_header ? below(8 + header) : 8 + header + below(bytes.size() - 8 - header);
      bytes[place] = static_cast<char>(random_());
    }
    return bytes;
  }

  size_t below(size_t limit) { return random_() % limit; }

 private:
  std::mt19937 random_;
};

// What happened to a model of these files: what it was refused with, or nothing.
std::string tried(const std::filesystem::path& folder) {
  constexpr int kTokens = 6;
  const auto checkpoint = Checkpoint::open(folder);
  if (!checkpoint.ok()) return checkpoint.error().message;
  const auto source = ModelSource::open(*checkpoint, kTokens);
  if (!source.ok()) return source.error().message;
  const auto backend = make_cpu_backend({.threads = 1}).value();
  backend->set_limit(int64_t{1} << 30);
  const auto model = Model::load(*source, *backend);
  if (!model.ok()) return model.error().message;
  const auto specs = specs_of(kv_shapes((*model)->spec(), DType::f16));
  if (!specs.ok()) return specs.error().message;
  const auto layout = plan_layout(*specs, {.page_tokens = 16});
  if (!layout.ok()) return layout.error().message;
  if ((*model)->spec().positions > 0 && (*model)->spec().positions < kTokens) return "too few positions";
  Runner runner(**model, *backend, 1, kTokens, DType::f16);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < kTokens; ++i) tokens.push_back(i % (*model)->spec().vocab);
  EXPECT_EQ(runner.step(0, 0, tokens).size(), static_cast<size_t>((*model)->spec().vocab) * kTokens);
  return {};
}

class DamageTest : public ::testing::TestWithParam<std::string> {};

TEST_P(DamageTest, IsRefusedOrRuns) {
  const std::filesystem::path golden = test::golden_path(GetParam());
  const std::string config = content_of(golden / "config.json"), weights = content_of(golden / "model.safetensors");
  const test::Folder folder;
  int refused = 0, ran = 0;
  for (uint32_t seed = 0; seed < 24; ++seed) {
    Damage damage(seed * 7919 + static_cast<uint32_t>(GetParam().size()));
    const bool settings = seed % 3 != 0;
    folder.write("config.json", settings ? damage.settings(config) : config);
    folder.write("model.safetensors", settings ? weights : damage.weights(weights));
    const std::string why = tried(folder.path());
    SCOPED_TRACE(fmt::format("damage {}: {}", seed, why));
    ++(why.empty() ? ran : refused);
    EXPECT_EQ(why.find('\n'), std::string::npos) << "a sentence";
    EXPECT_LT(why.size(), 600u);
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(ran, 0) << "all damage was seen: it was too coarse to tell anything";
}

INSTANTIATE_TEST_SUITE_P(Architectures, DamageTest, ::testing::ValuesIn(test::golden_names()), test::test_name);

}  // namespace
}  // namespace millrace
