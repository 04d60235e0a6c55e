// Names, listings and the folder: what pull() is made of, without a network.
#include <gtest/gtest.h>

#include <unistd.h>

#include <fstream>

#include "hub/folder.h"
#include "hub/listing.h"
#include "hub/name.h"
#include "hub/pull.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

std::string told(std::string_view text, std::string_view hub = kHub) {
  const auto name = parse_name(text, hub);
  if (!name.ok()) return "error";
  return fmt::format("{} {} {} {} {}|{}|{}|{}", name->source == ModelName::Source::hub ? "hub" : "registry",
                     name->origin, name->host, name->owner, name->name, name->tag, name->revision, name->file);
}

TEST(Name, OfHubs) {
  EXPECT_EQ(told("o/n"), "hub https://huggingface.co hf.co o n|||");
  EXPECT_EQ(told("o/n:Q4_K_M"), "hub https://huggingface.co hf.co o n|Q4_K_M||");
  EXPECT_EQ(told("o/n:Q8_0@v1.0"), "hub https://huggingface.co hf.co o n|Q8_0|v1.0|");
  EXPECT_EQ(told("hf.co/o/n:Q8_0"), "hub https://huggingface.co hf.co o n|Q8_0||");
  EXPECT_EQ(told("https://huggingface.co/o/n"), "hub https://huggingface.co hf.co o n|||");
  EXPECT_EQ(told("https://huggingface.co/o/n/resolve/main/a/b.gguf?download=true"),
            "hub https://huggingface.co hf.co o n||main|a/b.gguf");
  EXPECT_EQ(told("https://huggingface.co/o/n/tree/dev"), "hub https://huggingface.co hf.co o n||dev|");
  EXPECT_EQ(told("o/n/b.gguf"), "hub https://huggingface.co hf.co o n|||b.gguf");
  EXPECT_EQ(told("https://hub.example.org/o/n"), "hub https://hub.example.org hub.example.org o n|||");
  EXPECT_EQ(told("o/n", "http://127.0.0.1:99/"), "hub http://127.0.0.1:99 127.0.0.1:99 o n|||");
}

TEST(Name, OfRegistries) {
  EXPECT_EQ(told("llama3.2:1b"), "registry https://registry.ollama.ai ollama.com library llama3.2|1b||");
  EXPECT_EQ(told("llama3.2"), "registry https://registry.ollama.ai ollama.com library llama3.2|latest||");
  EXPECT_EQ(told("ollama.com/library/x:t"), "registry https://registry.ollama.ai ollama.com library x|t||");
  EXPECT_EQ(told("r.example.org:5000/a/b:t"), "registry https://r.example.org:5000 r.example.org:5000 a b|t||");
  EXPECT_EQ(told("http://127.0.0.1:5/v2/a/b/manifests/t"), "registry http://127.0.0.1:5 127.0.0.1:5 a b|t||");
}

TEST(Name, RefusesWhatIsNone) {
  for (const char* text : {"", "/", "../x", "o/..", "o/n:..", "o/n:", "o/n@../x", "o//n", "file:///etc/passwd", "a b",
                           "o/n/../../x.gguf", "https:///o/n", "o/n:a/b", "https://h:port/o/n", "o/n/x.bin", ".hidden"})
    EXPECT_EQ(told(text), "error") << text;
  EXPECT_EQ(told(std::string(5000, 'a')), "error");
}

TEST(Name, IsShownShort) {
  EXPECT_EQ(shown_name("hf.co", "o", "n", "Q4_0"), "o/n:Q4_0");
  EXPECT_EQ(shown_name("hf.co", "o", "n", "latest"), "o/n");
  EXPECT_EQ(shown_name("ollama.com", "library", "n", "1b"), "n:1b");
  EXPECT_EQ(shown_name("r.org", "o", "n", "1b"), "r.org/o/n:1b");
}

constexpr const char* kSha = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

TEST(Listing, OfAHub) {
  const std::string text = fmt::format(
      R"([{{"type":"directory","path":"d"}},{{"type":"file","path":"a.json","size":3,"oid":"{}"}},
          {{"type":"file","path":"b.gguf","size":9,"oid":"x","lfs":{{"oid":"{}","size":7000000000,"pointerSize":1}}}},
          {{"type":"file","path":"../../etc/passwd","size":1}},{{"type":"file","path":"/abs","size":1}},
          {{"type":"file","path":"a/./b","size":1}},{{"type":"file","path":".git/config","size":1}}])",
      std::string(kSha).substr(0, 40), kSha);
  const auto tree = parse_hub_tree(text);
  ASSERT_TRUE(tree.ok()) << tree.error().message;
  ASSERT_EQ(tree->files.size(), 2u);
  EXPECT_EQ(tree->skipped, 4u);
  EXPECT_EQ(tree->files[0].git.size(), 40u);
  EXPECT_EQ(tree->files[1].size, 7'000'000'000u);
  EXPECT_EQ(tree->files[1].sha256, kSha);
  EXPECT_EQ(tree->files[1].git, "");
  for (const char* bad : {"{}", "[", R"([{"path":"a","size":-1}])", R"([{"path":"a","size":9e18}])",
                          R"([{"path":"a","size":1,"lfs":{"oid":"short","size":1}}])"})
    EXPECT_FALSE(parse_hub_tree(bad).ok()) << bad;
}

TEST(Listing, PagesGoOn) {
  EXPECT_EQ(next_page(R"(<https://h/a?c=1>; rel="next")"), "https://h/a?c=1");
  EXPECT_EQ(next_page(R"(<https://h/p>; rel="prev", <https://h/n>; rel="next")"), "https://h/n");
  EXPECT_EQ(next_page(R"(<https://h/p>; rel="prev")"), std::nullopt);
  EXPECT_EQ(next_page(""), std::nullopt);
}

TEST(Listing, OfARegistry) {
  auto layer = [](std::string_view kind, std::string_view digest) {
    return fmt::format(R"({{"mediaType":"application/vnd.ollama.image.{}","digest":"{}","size":5}})", kind, digest);
  };
  const std::string sha = fmt::format("sha256:{}", kSha);
  auto manifest = [](std::string layers) { return fmt::format(R"({{"layers":[{}]}})", layers); };
  const auto files = parse_registry_manifest(manifest(layer("model", sha) + "," + layer("params", sha) + "," +
                                                      layer("license", sha) + "," + layer("license", sha)));
  ASSERT_TRUE(files.ok()) << files.error().message;
  ASSERT_EQ(files->size(), 3u);
  EXPECT_EQ((*files)[0].path, "model.gguf");
  EXPECT_EQ((*files)[0].sha256, kSha);
  EXPECT_FALSE(parse_registry_manifest(manifest(layer("template", sha))).ok());
  EXPECT_FALSE(parse_registry_manifest(manifest(layer("model", "sha256:../../x"))).ok());
  EXPECT_FALSE(parse_registry_manifest(manifest(layer("model", sha) + "," + layer("projector", sha))).ok());
  EXPECT_FALSE(parse_registry_manifest("{}").ok());
}

std::vector<RemoteFile> files_of(std::initializer_list<const char*> paths) {
  std::vector<RemoteFile> files;
  for (const char* path : paths) files.push_back({.path = path, .size = 10, .sha256 = kSha, .git = ""});
  return files;
}

std::string chosen(std::initializer_list<const char*> paths, std::string_view tag, std::string_view file = "") {
  const auto chosen = choose_files(files_of(paths), tag, file);
  if (!chosen.ok()) return fmt::format("error: {}", chosen.error().message);
  std::string text = fmt::format("{} {}:", chosen->tag, chosen->model);
  for (const RemoteFile& one : chosen->files) text += " " + one.path;
  return text;
}

TEST(Choice, OfGgufFiles) {
  EXPECT_EQ(chosen({"m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-F16.gguf", "README.md"}, ""),
            "Q4_K_M m-Q4_K_M.gguf: m-Q4_K_M.gguf");
  EXPECT_EQ(chosen({"m-Q4_K_M.gguf", "m-Q8_0.gguf"}, "q8_0"), "Q8_0 m-Q8_0.gguf: m-Q8_0.gguf");
  EXPECT_EQ(chosen({"m.i1-IQ2_XXS.gguf", "m-UD-Q4_K_XL.gguf"}, "UD-Q4_K_XL"),
            "UD-Q4_K_XL m-UD-Q4_K_XL.gguf: m-UD-Q4_K_XL.gguf");
  EXPECT_EQ(chosen({"Q8_0/m-Q8_0-00002-of-00002.gguf", "Q8_0/m-Q8_0-00001-of-00002.gguf"}, "Q8_0"),
            "Q8_0 Q8_0/m-Q8_0-00001-of-00002.gguf: Q8_0/m-Q8_0-00001-of-00002.gguf Q8_0/m-Q8_0-00002-of-00002.gguf");
  EXPECT_EQ(chosen({"only.gguf"}, ""), "latest only.gguf: only.gguf");
  EXPECT_EQ(chosen({"a-Q3_K.gguf", "b-Q3_K.gguf"}, "", "b-Q3_K.gguf"), "Q3_K b-Q3_K.gguf: b-Q3_K.gguf");
  EXPECT_NE(chosen({"a-Q3_K.gguf", "b-Q3_K.gguf"}, "Q3_K").find("two files"), std::string::npos);
  EXPECT_NE(chosen({"a-Q3_K.gguf", "b-Q2_K.gguf"}, "").find("Q3_K (10 B), Q2_K (10 B)"), std::string::npos);
  EXPECT_NE(chosen({"m-Q8_0-00001-of-00002.gguf"}, "Q8_0").find("split into 2"), std::string::npos);
  EXPECT_NE(chosen({"m-Q8_0.gguf"}, "Q4_0").find("no GGUF file 'Q4_0'"), std::string::npos);
}

TEST(Choice, OfSafetensors) {
  EXPECT_EQ(chosen({"config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                    "model.safetensors.index.json", "pytorch_model.bin", "consolidated.safetensors", "tokenizer.json",
                    "README.md", "onnx/model.onnx", "training_args.bin"},
                   ""),
            "latest : config.json model-00001-of-00002.safetensors model-00002-of-00002.safetensors "
            "model.safetensors.index.json tokenizer.json");
  EXPECT_EQ(chosen({"config.json", "model.safetensors", "modules.json", "1_Pooling/config.json"}, ""),
            "latest : config.json model.safetensors modules.json 1_Pooling/config.json");
  EXPECT_NE(chosen({"config.json", "pytorch_model.bin"}, "").find("pickles"), std::string::npos);
  EXPECT_NE(chosen({"README.md"}, "").find("neither"), std::string::npos);
}

class Folder : public testing::Test {
 protected:
  Folder() : root(fs::temp_directory_path() / fmt::format("millrace-hub-{}", ::getpid())) {
    fs::create_directories(root);
  }
  ~Folder() override { fs::remove_all(root); }
  void write(const fs::path& path, std::string_view text) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  void pulled(const fs::path& place, std::string_view name, std::string_view model) {
    write(place / kModelNotes, fmt::format(R"({{"name":"{}","model":"{}"}})", name, model));
    write(place / model, "weights");
  }
  std::string found(std::string_view typed) {
    const auto model = ModelFolder(root).find(typed);
    return model.ok() ? model->name : model.error().code == Code::not_found ? "none" : "several";
  }
  fs::path root;
};

TEST_F(Folder, FindsByEverySpellingThatMeansOne) {
  pulled("hf.co/Own/Name-GGUF/Q4_K_M", "Own/Name-GGUF:Q4_K_M", "m.gguf");
  pulled("hf.co/Own/Name-GGUF/Q8_0", "Own/Name-GGUF:Q8_0", "m.gguf");
  pulled("ollama.com/library/x/latest", "x", "model.gguf");
  pulled("r.org/a/x/latest", "r.org/a/x", "model.gguf");
  write("mine.gguf", "weights");
  write("dir/config.json", "{}");
  write("split/a-00001-of-00002.gguf", "1");
  write("split/a-00002-of-00002.gguf", "2");
  EXPECT_EQ(ModelFolder(root).list().size(), 7u);
  EXPECT_EQ(found("own/name-gguf:q4_k_m"), "Own/Name-GGUF:Q4_K_M");
  EXPECT_EQ(found("hf.co/own/name-gguf:q8_0"), "Own/Name-GGUF:Q8_0");
  EXPECT_EQ(found("https://huggingface.co/Own/Name-GGUF:Q8_0"), "Own/Name-GGUF:Q8_0");
  EXPECT_EQ(found("name-gguf:Q8_0"), "Own/Name-GGUF:Q8_0");
  EXPECT_EQ(found("Own/Name-GGUF"), "several");
  EXPECT_EQ(found("x"), "x");
  EXPECT_EQ(found("x:latest"), "several");
  EXPECT_EQ(found("r.org/a/x:latest"), "r.org/a/x");
  EXPECT_EQ(found("mine"), "mine");
  EXPECT_EQ(found("mine.gguf"), "mine");
  EXPECT_EQ(found("dir"), "dir");
  EXPECT_EQ(ModelFolder(root).find("split")->model.filename(), "a-00001-of-00002.gguf");
  EXPECT_EQ(found("nothing"), "none");
}

TEST_F(Folder, NotesThatLeaveTheFolderAreNotBelieved) {
  pulled("hf.co/o/n/t", "o/n:t", "m.gguf");
  write("hf.co/o/n/t/millrace.json", R"({"name":"o/n:t","model":"../../../../etc/passwd"})");
  EXPECT_EQ(found("o/n:t"), "none");
}

TEST_F(Folder, PublishesAndRemovesWhole) {
  const ModelFolder folder(root);
  const fs::path place = folder.place_of("127.0.0.1:99", "o", "n", "t");
  EXPECT_EQ(place, root / "127.0.0.1_99/o/n/t");
  for (const char* text : {"one", "two"}) {
    const fs::path gathered = folder.gathering_place(place);
    write(gathered.lexically_relative(root) / "m.gguf", text);
    write(gathered.lexically_relative(root) / kModelNotes, R"({"name":"o/n:t","model":"m.gguf"})");
    ASSERT_TRUE(folder.publish(gathered, place).ok());
    EXPECT_FALSE(fs::exists(root / ".partial" / "127.0.0.1_99"));
    std::string read;
    std::ifstream(place / "m.gguf") >> read;
    EXPECT_EQ(read, text);
  }
  auto model = folder.at(place);
  ASSERT_TRUE(model.ok());
  EXPECT_FALSE(model->used.has_value());
  ModelFolder::mark_used(*model);
  EXPECT_TRUE(folder.at(place)->used.has_value());
  ASSERT_TRUE(folder.remove(*model).ok());
  EXPECT_TRUE(fs::is_empty(root));
}

TEST_F(Folder, NotesTheUseOfWhatWasPutThereByHand) {
  const ModelFolder folder(root);
  write("plain.gguf", "x");
  write("directory/config.json", "{}");
  for (const char* name : {"plain", "directory"}) {
    auto model = folder.find(name);
    ASSERT_TRUE(model.ok()) << name;
    EXPECT_FALSE(model->used.has_value()) << name;
    ModelFolder::mark_used(*model);
    EXPECT_TRUE(folder.find(name)->used.has_value()) << name;
  }
  EXPECT_EQ(folder.list().size(), 2u);  // marks are no models
  for (const LocalModel& model : folder.list()) ASSERT_TRUE(folder.remove(model).ok());
  EXPECT_TRUE(fs::is_empty(root));
}

TEST(Pull, SaysWhatToDoByHand) {
  const auto name = parse_name("o/n:Q8_0");
  const std::string said = by_hand(ModelFolder("/models"), *name);
  EXPECT_NE(said.find("https://huggingface.co/o/n/tree/main"), std::string::npos) << said;
  EXPECT_NE(said.find("/models"), std::string::npos) << said;
}

}  // namespace
}  // namespace millrace
