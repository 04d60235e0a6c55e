// Adapters over HTTP: chosen by `model` and by `lora`, loaded and unloaded by operators only and from one folder only,
// and never served what another left in the cache.
#include <gtest/gtest.h>

#include "model/adapters.h"
#include "server/own/adapters.h"
#include "server/rig.h"

namespace millrace {
namespace {

using test::Lora;
using testing::at;
using testing::Response;
using testing::Rig;
using testing::served_model;
using testing::text_of;

// For the shipped model.
void write_adapter(const std::filesystem::path& path, int64_t rank, uint64_t seed) {
  std::filesystem::create_directories(path);
  std::vector<Lora> loras;
  for (int layer = 0; layer < 8; ++layer) {
    const std::string start = fmt::format("model.layers.{}.self_attn.", layer);
    loras.emplace_back(start + "q_proj", rank, 384, 384, seed * 100 + static_cast<uint64_t>(layer), 0.6);
    loras.emplace_back(start + "o_proj", rank, 384, 384, seed * 100 + 50 + static_cast<uint64_t>(layer), 0.6);
  }
  std::ofstream(path / "adapter_config.json") << to_text(test::peft_config(rank, static_cast<double>(rank)));
  std::ofstream(path / "adapter_model.safetensors", std::ios::binary)
      << test::safetensors_of(test::peft_tensors(loras));
}

class ServerAdapters : public ::testing::Test {
 protected:
  ServerAdapters() {
    write_adapter(folder_.path() / "one", 4, 1);
    write_adapter(folder_.path() / "two", 7, 2);
    std::filesystem::create_directories(folder_.path() / "broken");
    std::ofstream(folder_.path() / "broken/adapter_config.json") << R"({"peft_type": "LORA", "use_dora": true})";
    std::ofstream(folder_.path() / "broken/adapter_model.safetensors", std::ios::binary)
        << test::safetensors_of(test::peft_tensors({{"model.layers.0.self_attn.q_proj", 2, 384, 384, 1}}));
  }
  ServerOptions options(bool keys = false) {
    ServerOptions options;
    options.service.adapter_folder = folder_.path();
    const char* lines = "ops operator-key-1234567890 operator\nuser user-key-1234567890123\n";
    EXPECT_TRUE(options.service.keys.add_lines(keys ? lines : "").ok());
    return options;
  }
  static std::string asked(std::string_view model, std::string_view more = "",
                           std::string_view prompt = "Once upon a time there was a small") {
    return fmt::format(R"({{"model":"{}","prompt":"{}","max_tokens":12,"temperature":0{}}})", model, prompt, more);
  }
  static std::string text(const Response& response) { return text_of(at(response.json(), "choices", 0, "text")); }
  static Response load(Rig& rig, std::string_view name, std::string_view path, std::string_view headers = "") {
    return rig.post("/v1/load_lora_adapter", fmt::format(R"({{"lora_name":"{}","lora_path":"{}"}})", name, path),
                    headers);
  }
  static Response unload(Rig& rig, std::string_view name) {
    return rig.post("/v1/unload_lora_adapter", fmt::format(R"({{"lora_name":"{}"}})", name));
  }
  static int64_t cached(const Response& response) {
    return at(response.json(), "usage", "prompt_tokens_details", "cached_tokens").to_number<int64_t>();
  }
  test::Folder folder_;
};

#if MILLRACE_SESSION_TEXT  // prompts are words
TEST_F(ServerAdapters, AreChosenByModelOrByLora) {
  Rig rig(options());
  const std::string bare = text(rig.post("/v1/completions", asked("stories")));
  EXPECT_EQ(rig.post("/v1/completions", asked("one")).status, 404);
  const Response loaded = load(rig, "one", "one");
  EXPECT_EQ(loaded.status, 200) << loaded.body;
  EXPECT_NE(loaded.body.find("'one'"), std::string::npos);
  EXPECT_EQ(load(rig, "second", (folder_.path() / "two").string()).status, 200);

  const Response models = rig.get("/v1/models");
  EXPECT_EQ(at(models.json(), "data").get_array().size(), 3u);
  EXPECT_EQ(text_of(at(models.json(), "data", 1, "id")), "one");
  EXPECT_EQ(text_of(at(models.json(), "data", 1, "parent")), "stories");
  EXPECT_EQ(text_of(at(rig.get("/v1/models/second").json(), "parent")), "stories");
  const Response list = rig.get("/lora-adapters");
  EXPECT_EQ(text_of(at(list.json(), 1, "name")), "second");
  EXPECT_EQ(at(list.json(), 1, "id").to_number<int>(), 1);

  const Response first = rig.post("/v1/completions", asked("one"));
  EXPECT_EQ(text_of(at(first.json(), "model")), "one");
  const std::string one = text(first), two = text(rig.post("/v1/completions", asked("second")));
  EXPECT_NE(one, bare);
  EXPECT_NE(two, bare);
  EXPECT_NE(one, two);
  auto lora = [&](std::string_view list_of) {
    return rig.post("/v1/completions", asked("stories", fmt::format(R"(,"lora":{})", list_of)));
  };
  EXPECT_EQ(text(lora(R"([{"id":0}])")), one);
  EXPECT_EQ(text(lora(R"([{"id":0,"scale":0},{"id":1,"scale":1.0}])")), two);
  EXPECT_EQ(text(lora(R"([{"id":0,"scale":0}])")), bare);
  EXPECT_NE(text(lora(R"([{"id":0,"scale":-1}])")), one);
  EXPECT_EQ(text(lora("[]")), bare);
  EXPECT_EQ(lora(R"([{"id":5}])").status, 400);
  EXPECT_EQ(lora(R"([{"id":0},{"id":1}])").status, 400);
  EXPECT_EQ(lora(R"([{"scale":1}])").status, 400);
  EXPECT_EQ(rig.post("/v1/completions", asked("one", R"(,"lora":[{"id":1}])")).status, 400);
  EXPECT_EQ(text(rig.post("/v1/completions", asked("stories"))), bare);

  EXPECT_EQ(unload(rig, "one").status, 200);
  EXPECT_EQ(unload(rig, "one").status, 404);
  EXPECT_EQ(rig.post("/v1/completions", asked("one")).status, 404);
  EXPECT_EQ(text(rig.post("/v1/completions", asked("second"))), two);
  EXPECT_EQ(at(rig.get("/v1/models").json(), "data").get_array().size(), 2u);
}

TEST_F(ServerAdapters, NeverFindWhatAnotherLeftInTheCache) {
  Rig rig(options());
  std::string prompt;
  for (int i = 0; i < 12; ++i) prompt += "Once upon a time there was a little dog who liked to play. ";
  auto ask = [&](std::string_view model, std::string_view more = "") {
    return rig.post("/v1/completions", asked(model, more, prompt));
  };
  ASSERT_EQ(load(rig, "one", "one").status, 200);
  const std::string bare = text(ask("stories"));
  EXPECT_GT(cached(ask("stories")), 0);
  const Response fresh = ask("one");
  EXPECT_EQ(cached(fresh), 0);
  const Response again = ask("one");
  EXPECT_GT(cached(again), 0);
  EXPECT_EQ(text(again), text(fresh));
  EXPECT_EQ(cached(ask("one", R"(,"lora":[{"id":0,"scale":0.5}])")), 0);
  // Another adapter under the same name.
  ASSERT_EQ(unload(rig, "one").status, 200);
  ASSERT_EQ(load(rig, "one", "two").status, 200);
  const Response other = ask("one");
  EXPECT_EQ(cached(other), 0);
  EXPECT_NE(text(other), text(fresh));
  // The first one again: what it left is still its own.
  ASSERT_EQ(unload(rig, "one").status, 200);
  ASSERT_EQ(load(rig, "renamed", "one").status, 200);
  const Response back = ask("renamed");
  EXPECT_GT(cached(back), 0);
  EXPECT_EQ(text(back), text(fresh));
  EXPECT_EQ(text(ask("stories")), bare);
}

TEST_F(ServerAdapters, AreLoadedByOperatorsFromOneFolder) {
  Rig rig(options(true));
  const std::string user = "Authorization: Bearer user-key-1234567890123\r\n",
                    ops = "Authorization: Bearer operator-key-1234567890\r\n";
  EXPECT_EQ(load(rig, "one", "one").status, 401);
  EXPECT_EQ(load(rig, "one", "one", user).status, 403);
  EXPECT_EQ(load(rig, "one", "../one", ops).status, 404);
  EXPECT_EQ(load(rig, "one", "/etc", ops).status, 404);
  std::filesystem::create_directory_symlink("/etc", folder_.path() / "link");
  EXPECT_EQ(load(rig, "one", "link", ops).status, 404);
  const Response broken = load(rig, "one", "broken", ops);
  EXPECT_EQ(broken.status, 400);
  EXPECT_NE(broken.body.find("DoRA"), std::string::npos) << broken.body;
  EXPECT_EQ(load(rig, "stories", "one", ops).status, 400);
  EXPECT_EQ(load(rig, "one", "one", ops).status, 200);
  EXPECT_EQ(load(rig, "one", "two", ops).status, 400);
  EXPECT_EQ(rig.post("/v1/load_lora_adapter", R"({"lora_name":"x"})", ops).status, 400);
  // Whoever has a key may use it and see that it is there, and not where it lies.
  const Response list = rig.get("/lora-adapters", user);
  EXPECT_EQ(text_of(at(list.json(), 0, "name")), "one");
  EXPECT_EQ(list.body.find("path"), std::string::npos);
  EXPECT_EQ(rig.post("/v1/completions", asked("one"), user).status, 200);

  Rig closed;
  EXPECT_EQ(load(closed, "one", "one").status, 403);
}
#endif

// One rule for all bodies: what was taken and does nothing is named.
TEST_F(ServerAdapters, RequestsForOperatorsNameWhatTheyIgnore) {
  ServerOptions options = this->options();
  options.service.weights_folder = folder_.path();
  options.service.fits_beside = [](const ServedModel&) { return true; };
  options.service.load = [](const std::string&, const ServedModel&) -> Result<ServedModel> { return served_model(); };
  std::ofstream(folder_.path() / "new.gguf") << "GGUF";
  Rig rig(std::move(options));
  for (const auto& [path, body, status] :
       {std::tuple{"/v1/load_lora_adapter", R"({"lora_name":"x","lora_path":"one","foo":1})", 200},
        std::tuple{"/v1/unload_lora_adapter", R"({"lora_name":"x","foo":1})", 200},
        std::tuple{"/v1/unload_lora_adapter", R"({"lora_name":"x","foo":1})", 404},
        std::tuple{"/update_weights_from_disk", R"({"model_path":"new.gguf","foo":1})", 200},
        std::tuple{"/update_weights_from_disk", R"({"model_path":"none.gguf","foo":1})", 404}}) {
    const Response response = rig.post(path, body);
    EXPECT_EQ(response.status, status) << path << response.body;
    const auto named = response.headers.find("x-millrace-ignored");
    ASSERT_NE(named, response.headers.end()) << path << status;
    EXPECT_EQ(named->second, "foo");
  }
}

TEST(AdapterPaths, StayInTheFolder) {
  test::Folder folder;
  std::filesystem::create_directories(folder.path() / "a/b");
  std::filesystem::create_directories(folder.path().string() + "-beside");
  const auto root = std::filesystem::canonical(folder.path());
  EXPECT_EQ(path_within(folder.path(), "a/b").value(), root / "a/b");
  EXPECT_EQ(path_within(folder.path(), "a/../a").value(), root / "a");
  EXPECT_EQ(path_within(folder.path(), (root / "a").string()).value(), root / "a");
  for (const std::string& path :
       {std::string(".."), std::string("a/../.."), std::string("/"), root.string() + "-beside", std::string("c")})
    EXPECT_FALSE(path_within(folder.path(), path).ok()) << path;
  EXPECT_FALSE(path_within(folder.path() / "none", "a").ok());
  std::filesystem::remove_all(folder.path().string() + "-beside");
}

// What a folder holds may not lead out of it either, however deep, nor may the other parts of a file.
TEST(AdapterPaths, FilesInsideDoNotLeadOut) {
  namespace fs = std::filesystem;
  test::Folder folder, outside;
  const fs::path in = folder.path();
  std::ofstream(outside.path() / "secret.txt") << "SECRET";
  auto refused = [&](std::string_view path, std::string_view link) {
    const auto found = path_within(in, path);
    ASSERT_FALSE(found.ok()) << path;
    EXPECT_NE(found.error().message.find(fmt::format("{} is a link that leads out", link)), std::string::npos)
        << found.error().message;
  };
  fs::create_directories(in / "shared");
  std::ofstream(in / "shared/config.json") << "{}";
  fs::create_directories(in / "good/sub");
  fs::create_symlink("../shared/config.json", in / "good/config.json");
  fs::create_directory_symlink("../good", in / "good/round");
  fs::create_symlink("nowhere", in / "good/dangling");
  EXPECT_TRUE(path_within(in, "good").ok());
  fs::create_directories(in / "weights");
  fs::create_symlink(outside.path() / "secret.txt", in / "weights/model.safetensors");
  refused("weights", "weights/model.safetensors");
  fs::create_directories(in / "deep/sub");
  fs::create_symlink(outside.path() / "secret.txt", in / "deep/sub/config.json");
  refused("deep", "deep/sub/config.json");
  fs::create_directories(in / "around");
  fs::create_directory_symlink("../deep/sub", in / "around/sub");
  refused("around", "deep/sub/config.json");
  fs::create_directories(in / "folders");
  fs::create_directory_symlink(outside.path(), in / "folders/sub");
  refused("folders", "folders/sub");
  std::ofstream(in / "m-00001-of-00002.gguf") << "GGUF";
  std::ofstream(in / "alone.gguf") << "GGUF";
  fs::create_symlink(outside.path() / "secret.txt", in / "m-00002-of-00002.gguf");
  refused("m-00001-of-00002.gguf", "m-00002-of-00002.gguf");
  EXPECT_TRUE(path_within(in, "alone.gguf").ok());
}

}  // namespace
}  // namespace millrace
