#include "tensor/checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <sstream>

#include "tensor/files.h"
#include "tensor/hugging_face.h"
#include "tensor/identify.h"

namespace millrace {
namespace {

using namespace test;
namespace fs = std::filesystem;

constexpr std::string_view kConfig = R"({"model_type": "llama", "hidden_size": 64})";

// One tensor of four bytes.
std::string tiny_safetensors(std::string_view name, std::string_view type = "U8") {
  return raw_safetensors(fmt::format(R"({{"{}":{{"dtype":"{}","shape":[4],"data_offsets":[0,4]}}}})", name, type), 4);
}

void expect_refused(const fs::path& path, std::string_view part, Code code) {
  const Result<Checkpoint> result = Checkpoint::open(path);
  ASSERT_FALSE(result.ok()) << "opened, though: " << part;
  const std::string& message = result.error().message;
  EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_EQ(code_name(result.error().code), code_name(code)) << message;
  EXPECT_EQ(message.find(path.parent_path().string()), 0u) << "the message names no file: " << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

// ---- GGUF
// ---------------------------------------------------------------------------------------------------------------

TEST(Checkpoint, OpensAGgufFileByContentNotName) {
  const Folder folder;
  const auto checkpoint = Checkpoint::open(folder.write("model.safetensors", whole_gguf()));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->kind(), Checkpoint::Kind::gguf);
  EXPECT_EQ(checkpoint->gguf_version(), 3u);
  EXPECT_EQ(checkpoint->file_bytes(), whole_gguf().size());
  EXPECT_EQ(checkpoint->chat_template(), "{{ messages }}");
  ASSERT_NE(checkpoint->find("output.weight"), nullptr);
  EXPECT_EQ(checkpoint->find("output.weight")->type, DType::bf16);
  EXPECT_EQ(checkpoint->find("output.weigh"), nullptr);
  EXPECT_EQ(checkpoint->find(""), nullptr);
  EXPECT_TRUE(checkpoint->config().is_null());
  const auto copy = *checkpoint;
  EXPECT_EQ(copy.find("scalar")->values(), 1);
}

TEST(Checkpoint, ReadsRowsAsFloats) {
  const Folder folder;
  GgufWriter writer;
  const std::vector<float> numbers = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  ASSERT_TRUE(writer.add("m", DType::f32, {2, 3, 2}).ok());
  ASSERT_TRUE(writer.add("h", DType::f16, {2}).ok());
  ASSERT_TRUE(writer.add("odd", DType::q8_k, {256}).ok());
  ASSERT_TRUE(writer.begin(folder.path() / "m.gguf").ok());
  ASSERT_TRUE(writer.write(std::as_bytes(std::span(numbers))).ok());
  ASSERT_TRUE(writer.write(bytes_view(std::string_view("\x00\x3c\x00\xc0", 4))).ok());
  ASSERT_TRUE(writer.write(std::vector<std::byte>(292)).ok());
  ASSERT_TRUE(writer.finish().ok());
  const auto checkpoint = Checkpoint::open(folder.path() / "m.gguf");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const StoredTensor& m = *checkpoint->find("m");
  EXPECT_EQ(m.rows(), 6);
  EXPECT_EQ(m.cols(), 2);
  std::vector<float> out(4);
  ASSERT_TRUE(read_rows(m, 3, 2, out).ok());
  EXPECT_EQ(out, (std::vector<float>{7, 8, 9, 10}));
  EXPECT_EQ(*read_floats(m), numbers);
  const Tensor view = m.view();
  EXPECT_EQ(view.rows, 6);
  EXPECT_EQ(view.stride, 8);
  EXPECT_EQ(view.row(5)[1], 12.0f);
  const StoredTensor& h = *checkpoint->find("h");
  EXPECT_EQ(h.rows(), 1);
  EXPECT_EQ(*read_floats(h), (std::vector<float>{1.0f, -2.0f}));
  const auto unreadable = read_floats(*checkpoint->find("odd"));
  ASSERT_FALSE(unreadable.ok());
  EXPECT_EQ(unreadable.error().message, "tensor 'odd' is in Q8_K, which cannot be read");
}

std::string part_of(uint16_t number, uint16_t count, int32_t tensors, const std::string& tensor) {
  RawGguf raw(1, 4);
  raw.key("split.no", MetaType::u16).number(number).key("split.count", MetaType::u16).number(count);
  raw.key("split.tensors.count", MetaType::i32).number(tensors);
  raw.key("general.name", MetaType::string).string(number == 0 ? "first" : "later");
  return raw.tensor(tensor, {8}, 0, 0).pad().data(32).text();
}

TEST(Checkpoint, OpensAllPartsFromAnyOfThem) {
  const Folder folder;
  const fs::path first = folder.write("m-00001-of-00003.gguf", part_of(0, 3, 3, "a"));
  const fs::path second = folder.write("m-00002-of-00003.gguf", part_of(1, 3, 3, "b"));
  folder.write("m-00003-of-00003.gguf", part_of(2, 3, 3, "c"));
  for (const fs::path& path : {first, second}) {
    const auto checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    ASSERT_EQ(checkpoint->tensors().size(), 3u);
    EXPECT_EQ(checkpoint->tensors()[2].name, "c");
    EXPECT_EQ(*checkpoint->metadata().get_string("general.name", ""), "first");
    EXPECT_EQ(checkpoint->path(), path);
  }
}

TEST(Checkpoint, PartsThatDoNotFitTogether) {
  const Folder folder;
  const fs::path first = folder.write("m-00001-of-00002.gguf", part_of(0, 2, 2, "a"));
  expect_refused(first, "part 2 of 2 is missing (m-00002-of-00002.gguf)", Code::not_found);
  folder.write("m-00002-of-00002.gguf", part_of(0, 2, 2, "b"));
  expect_refused(first, "says it is part 1 of 2: files of different models are mixed", Code::corrupt);
  folder.write("m-00002-of-00002.gguf", part_of(1, 2, 2, "a"));
  expect_refused(first, "two of its files hold a tensor 'a'", Code::corrupt);
  folder.write("m-00002-of-00002.gguf", part_of(1, 2, 2, "b"));
  EXPECT_TRUE(Checkpoint::open(first).ok());
  expect_refused(folder.write("renamed.gguf", part_of(0, 2, 2, "a")), "keep the names NAME-00001-of-00002.gguf",
                 Code::invalid);
  folder.write("m-00001-of-00002.gguf", part_of(0, 2, 5, "a"));
  expect_refused(first, "hold 2 tensors together, but should hold 5", Code::corrupt);
  folder.write("m-00002-of-00002.gguf", "<html>");
  expect_refused(first, "web page", Code::invalid);
}

// ---- Hugging Face
// -------------------------------------------------------------------------------------------------------

TEST(Checkpoint, OpensADirectoryWithOneFile) {
  const Folder folder;
  folder.write("config.json", kConfig);
  folder.write("generation_config.json", R"({"temperature": 0.6})");
  folder.write("tokenizer_config.json", R"({"chat_template": "old"})");
  folder.write("tokenizer.json", "{}");
  folder.write("model.safetensors", tiny_safetensors("w"));
  auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->kind(), Checkpoint::Kind::hugging_face);
  EXPECT_EQ(*get_string(checkpoint->config(), "model_type", ""), "llama");
  EXPECT_EQ(*get_number(checkpoint->generation_config(), "temperature", 0), 0.6);
  EXPECT_EQ(checkpoint->chat_template(), "old");
  EXPECT_EQ(checkpoint->tokenizer_json(), folder.path() / "tokenizer.json");
  EXPECT_EQ(checkpoint->tensors().size(), 1u);
  EXPECT_TRUE(checkpoint->metadata().entries().empty());
  folder.write("chat_template.jinja", "new");
  checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ(checkpoint->chat_template(), "new");
}

TEST(Checkpoint, OpensADirectoryWithShards) {
  const Folder folder;
  folder.write("config.json", kConfig);
  folder.write("model-00001-of-00002.safetensors", tiny_safetensors("a"));
  folder.write("model.safetensors.index.json",
               R"({"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}})");
  expect_refused(folder.path(), "model-00002-of-00002.safetensors is missing", Code::not_found);
  folder.write("model-00002-of-00002.safetensors", tiny_safetensors("x"));
  expect_refused(folder.path(), "should hold tensor 'b' but does not", Code::corrupt);
  folder.write("model-00002-of-00002.safetensors", tiny_safetensors("a"));
  expect_refused(folder.path(), "two of its files hold a tensor 'a'", Code::corrupt);
  folder.write("model-00002-of-00002.safetensors", tiny_safetensors("b"));
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->tensors().size(), 2u);
  EXPECT_NE(checkpoint->find("b"), nullptr);
  expect_refused(folder.path() / "model-00001-of-00002.safetensors", "is part 1 of 2: give the directory",
                 Code::invalid);
}

TEST(Checkpoint, OpensOneSafetensorsFile) {
  const Folder folder;
  folder.write("config.json", kConfig);
  const auto checkpoint = Checkpoint::open(folder.write("weights.bin", tiny_safetensors("w")));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->kind(), Checkpoint::Kind::safetensors);
  EXPECT_TRUE(checkpoint->config().is_null());
}

TEST(Checkpoint, DirectoriesThatAreNotModels) {
  const Folder folder;
  expect_refused(folder.path(), "has no config.json", Code::not_found);
  fs::create_directory(folder.path() / "snapshots");
  expect_refused(folder.path(), "is a download cache: give one of the directories in", Code::not_found);
  fs::remove(folder.path() / "snapshots");
  folder.write("model-q4.gguf", whole_gguf());
  expect_refused(folder.path(), "holds model-q4.gguf: give the path of that file", Code::not_found);
  folder.write("config.json", kConfig);
  expect_refused(folder.path(), "has a config.json but no weights", Code::not_found);
  folder.write("pytorch_model-00001-of-00002.bin", "PK");
  expect_refused(folder.path(), "only as pickle (pytorch_model-00001-of-00002.bin)", Code::unsupported);
  folder.write("adapter_model.safetensors", tiny_safetensors("w"));
  expect_refused(folder.path(), "LoRA adapter", Code::unsupported);
  folder.write("custom.safetensors", tiny_safetensors("w"));
  EXPECT_TRUE(Checkpoint::open(folder.path()).ok()) << "the only file that can be meant";
  fs::remove(folder.path() / "adapter_model.safetensors");
  folder.write("second.safetensors", tiny_safetensors("v"));
  expect_refused(folder.path(), "no model.safetensors.index.json", Code::not_found);
}

TEST(Checkpoint, SideFilesMustBeRight) {
  const Folder folder;
  folder.write("model.safetensors", tiny_safetensors("w"));
  folder.write("config.json", "<!DOCTYPE html><html>");
  expect_refused(folder.path(), "config.json: not valid JSON at byte 0", Code::invalid);
  folder.write("config.json", "[]");
  expect_refused(folder.path(), "config.json: should hold a JSON object", Code::invalid);
  folder.write("config.json", "");
  expect_refused(folder.path(), "config.json: not valid JSON", Code::invalid);
  folder.write("config.json", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n");
  expect_refused(folder.path(), "config.json: is a Git LFS pointer", Code::invalid);
  folder.write("config.json", kConfig);
  folder.write("tokenizer_config.json", "{");
  expect_refused(folder.path(), "tokenizer_config.json: not valid JSON", Code::invalid);
  folder.write("tokenizer_config.json", "{}");
  folder.write("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 987654321\n");
  expect_refused(folder.path(),
                 "model.safetensors: is a Git LFS pointer of 72 bytes, not the model itself (which has 987654321",
                 Code::invalid);
}

// A link among the small files stays in the model's folder, or in the blobs of its own download cache.
TEST(Checkpoint, SideFilesDoNotLeadElsewhere) {
  const Folder folder, outside;
  const std::string content = R"({"chat_template": "SECRET", "weight_map": {"SECRETTENSOR": "SECRETFILE"}})";
  const fs::path secret = outside.write("secret.json", content);
  folder.write("model.safetensors", tiny_safetensors("w"));
  folder.write("config.json", kConfig);
  fs::create_directories(folder.path() / "1_Pooling");
  folder.write("modules.json", R"([{"path": "1_Pooling"}])");
  auto link = [&](std::string_view name) {
    const fs::path at = folder.path() / name;
    const bool there = fs::exists(at);
    if (there) fs::rename(at, folder.path() / "kept");
    fs::create_symlink(secret, at);
    const auto opened = Checkpoint::open(folder.path());
    ASSERT_FALSE(opened.ok()) << name;
    const std::string& message = opened.error().message;
    EXPECT_EQ(message.find(fmt::format("{}: leads to {}", at.string(), fs::canonical(secret).string())), 0u) << message;
    EXPECT_NE(message.find("put a copy"), std::string::npos) << message;
    EXPECT_EQ(message.find("SECRET"), std::string::npos) << message;
    fs::remove(at);
    if (there) fs::rename(folder.path() / "kept", at);
  };
  for (std::string_view name :
       {"config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json", "chat_template.jinja",
        "config_sentence_transformers.json", "sentence_bert_config.json", "modules.json", "1_Pooling/config.json"})
    link(name);
  fs::rename(folder.path() / "model.safetensors", folder.path() / "a.safetensors");
  link("model.safetensors.index.json");
  fs::rename(folder.path() / "a.safetensors", folder.path() / "model.safetensors");
  // A folder inside that is itself a link, and what has no path any more.
  fs::rename(folder.path() / "1_Pooling", folder.path() / "real");
  fs::create_directory_symlink(outside.path(), folder.path() / "1_Pooling");
  EXPECT_TRUE(Checkpoint::open(folder.path()).ok());
  fs::rename(secret, outside.path() / "config.json");
  EXPECT_FALSE(Checkpoint::open(folder.path()).ok());
  fs::remove(folder.path() / "1_Pooling");
  std::FILE* nameless = std::tmpfile();
  ASSERT_NE(nameless, nullptr);
  fs::create_symlink(fmt::format("/proc/self/fd/{}", ::fileno(nameless)), folder.path() / "chat_template.jinja");
  EXPECT_FALSE(Checkpoint::open(folder.path()).ok());
  std::fclose(nameless);
  fs::remove(folder.path() / "chat_template.jinja");
  // Within the folder, and to a folder by another name, links are fine.
  fs::create_symlink("real/t.jinja", folder.path() / "chat_template.jinja");
  folder.write("real/t.jinja", "hello");
  fs::create_directory_symlink(folder.path(), outside.path() / "name");
  const auto opened = Checkpoint::open(outside.path() / "name");
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(*opened->chat_template(), "hello");
}

TEST(Checkpoint, OpensASnapshotOfADownloadCache) {
  const Folder cache, outside;
  const fs::path one = cache.path() / "models--a--one", other = cache.path() / "models--a--other";
  const fs::path snapshot = one / "snapshots/abc";
  for (const fs::path& folder : {one / "blobs", other / "blobs", snapshot}) fs::create_directories(folder);
  cache.write("models--a--one/blobs/11", kConfig);
  cache.write("models--a--one/blobs/22", tiny_safetensors("w"));
  cache.write("models--a--one/blobs/33", "hello");
  cache.write("models--a--other/blobs/44", "other");
  fs::create_symlink("../../blobs/11", snapshot / "config.json");
  fs::create_symlink("../../blobs/22", snapshot / "model.safetensors");
  fs::create_symlink("../../blobs/33", snapshot / "chat_template.jinja");
  const auto opened = Checkpoint::open(snapshot);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(*opened->chat_template(), "hello");
  fs::remove(snapshot / "chat_template.jinja");
  fs::create_symlink("../../../models--a--other/blobs/44", snapshot / "chat_template.jinja");
  expect_refused(snapshot, "outside of the model's folder", Code::invalid);
  fs::remove(snapshot / "chat_template.jinja");
  EXPECT_TRUE(Checkpoint::open(snapshot).ok());
  // Blobs that are a link could lead anywhere.
  fs::rename(one / "blobs", outside.path() / "blobs");
  fs::create_directory_symlink(outside.path() / "blobs", one / "blobs");
  expect_refused(snapshot, "outside of the model's folder", Code::invalid);
}

// Weights may lie on another disk; what a link among them leads to is not quoted if it holds none.
TEST(Checkpoint, LinkedWeightsAreReadAndNeverQuoted) {
  const Folder folder, outside;
  folder.write("config.json", kConfig);
  const fs::path weights = folder.path() / "model.safetensors";
  fs::create_symlink(outside.write("m.safetensors", tiny_safetensors("w")), weights);
  EXPECT_TRUE(Checkpoint::open(folder.path()).ok());
  fs::remove(weights);
  folder.write("model.safetensors.index.json",
               R"({"weight_map": {"w": "model-00001-of-00002.safetensors", "v": "model-00002-of-00002.safetensors"}})");
  folder.write("model-00001-of-00002.safetensors", tiny_safetensors("w"));
  for (std::string_view secret : {"root:SECRET:19000\n", "{\"key\": \"SECRET\"}", "\x01SECRET", "PK\x03\x04SECRET",
                                  "version https://git-lfs.github.com/spec/v1\nSECRET\nsize SECRET\n"}) {
    fs::create_symlink(outside.write("secret", secret), folder.path() / "model-00002-of-00002.safetensors");
    const auto opened = Checkpoint::open(folder.path());
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().message.find("SECRET"), std::string::npos) << opened.error().message;
    fs::remove(folder.path() / "model-00002-of-00002.safetensors");
  }
}

// ---- files that are something else
// --------------------------------------------------------------------------------------

TEST(Checkpoint, SaysWhatAFileIs) {
  const Folder folder;
  expect_refused(folder.path() / "absent.gguf", "does not exist: check the path", Code::not_found);
  expect_refused("/dev/null", "is neither a file nor a directory", Code::invalid);
  expect_refused(folder.write("empty.gguf", ""), "is empty", Code::invalid);
  expect_refused(folder.write("a.bin", std::string_view("PK\x03\x04 archive/data.pkl", 22)), "pickle",
                 Code::unsupported);
  expect_refused(folder.write("b.pt", std::string_view("\x80\x02}q", 4)), "pickle", Code::unsupported);
  expect_refused(folder.write("c.gguf", "<!DOCTYPE html>\n<html><body>Login</body></html>"), "web page", Code::invalid);
  expect_refused(folder.write("d.gguf", "\n <HTML>"), "web page", Code::invalid);
  expect_refused(folder.write("e.gguf", "Entry not found"), "is a text file (15 bytes), not a model", Code::invalid);
  expect_refused(folder.write("f.json", R"({"error": "gated"})"), "is a JSON file", Code::invalid);
  expect_refused(folder.write("g.bin", "tjgg\x01\x02\x03\x04"), "from before GGUF", Code::unsupported);
  expect_refused(folder.write("h.bin", "lmgg\x01\x02\x03\x04"), "from before GGUF", Code::unsupported);
  expect_refused(folder.write("i.onnx", std::string_view("\x08\x07\x12\x07pytorch", 11)), "ONNX", Code::unsupported);
  expect_refused(folder.write("j.gz", std::string_view("\x1f\x8b\x08\x00\x00", 5)), "archive", Code::unsupported);
  expect_refused(folder.write("k.h5", "\x89HDF\r\n\x1a\n"), "HDF5", Code::unsupported);
  expect_refused(folder.write("l.gguf", std::string_view("\x01\x02\x03\x04\x05", 5)),
                 "neither a GGUF nor a safetensors file (5 bytes)", Code::invalid);
  expect_refused(folder.write("m.gguf", std::string_view("\x01", 1)), "neither a GGUF nor", Code::invalid);
  expect_refused(folder.write("n.gguf", whole_gguf().substr(0, 40000)), "is incomplete", Code::corrupt);
  expect_refused(folder.write("o.safetensors", tiny_safetensors("w").substr(0, tiny_safetensors("w").size() - 3)),
                 "is incomplete", Code::corrupt);
  expect_refused(folder.write("p.gguf", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"),
                 "git lfs pull", Code::invalid);
  expect_refused(folder.write("q.bin", "0 text \x1b[31m red"), "neither a GGUF nor", Code::invalid);
}

TEST(Checkpoint, NamesInMessagesCannotForgeLines) {
  EXPECT_EQ(in_quotes("a.b"), "'a.b'");
  EXPECT_EQ(in_quotes("a\nb\x1b[0m'\\"), "'a\\x0ab\\x1b[0m\\x27\\x5c'");
  EXPECT_EQ(in_quotes(std::string(200, 'n')), "'" + std::string(80, 'n') + "...'");
}

// ---- configs
// ------------------------------------------------------------------------------------------------------------

TEST(Config, PythonsNumbersAreUnderstood) {
  const auto config = parse_config(R"({"limit": [0.0, Infinity, -Infinity], "nan": NaN, "text": "NaN \" Infinity"})");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->at("limit").at(1).as_double(), INFINITY);
  EXPECT_EQ(config->at("limit").at(2).as_double(), -INFINITY);
  EXPECT_TRUE(config->at("nan").is_null());
  EXPECT_EQ(config->at("text").as_string(), "NaN \" Infinity");
}

TEST(Config, ChatTemplatesComeInThreeShapes) {
  const auto get = [](std::string_view text) { return chat_template_of(*parse_config(text)); };
  EXPECT_EQ(get(R"({"chat_template": "x"})"), "x");
  EXPECT_EQ(get(R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]})"),
            "d");
  EXPECT_EQ(get(R"({"chat_template": [{"name": "rag", "template": "r"}, 7]})"), "r");
  EXPECT_EQ(get(R"({"chat_template": null})"), std::nullopt);
  EXPECT_EQ(get(R"({"chat_template": {}})"), std::nullopt);
  EXPECT_EQ(get("{}"), std::nullopt);
}

TEST(Config, QuantisationIsNamed) {
  const auto get = [](std::string_view text) { return quantisation_of(*parse_config(text)); };
  EXPECT_EQ(get(R"({"quantization_config": {"quant_method": "gptq", "bits": 4}})"), "gptq, 4 bits");
  EXPECT_EQ(get(R"({"quantization_config": {"quant_method": "fp8"}})"), "fp8");
  EXPECT_EQ(get(R"({"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": true}})"),
            "bitsandbytes, 4 bits");
  EXPECT_EQ(get(R"({"text_config": {"quantization_config": {"quant_method": "mxfp4"}}})"), "mxfp4");
  EXPECT_EQ(get(R"({"compression_config": {"format": "pack-quantized"}})"), "pack-quantized");
  EXPECT_EQ(get(R"({"quantization_config": {}})"), "an unnamed method");
  EXPECT_EQ(get(R"({"quantization_config": null})"), std::nullopt);
  EXPECT_EQ(get("{}"), std::nullopt);
}

TEST(Quantisation, IsFoundInConfigOrTensors) {
  const Folder folder;
  const auto check = [&](std::string_view config, std::string_view file) -> std::optional<std::string> {
    folder.write("config.json", config);
    folder.write("model.safetensors", file);
    const auto checkpoint = Checkpoint::open(folder.path());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    return unsupported_quantisation(*checkpoint);
  };
  EXPECT_EQ(check(kConfig, tiny_safetensors("model.weight")), std::nullopt);
  EXPECT_EQ(check(kConfig, tiny_safetensors("model.weight", "F8_E4M3")), std::nullopt);
  const auto named = check(R"({"quantization_config": {"quant_method": "hqq", "bits": 4}})", tiny_safetensors("w"));
  ASSERT_TRUE(named);
  EXPECT_EQ(named->find("its weights are quantised (hqq, 4 bits, says quantization_config in config.json)"), 0u)
      << *named;
  for (const char* name : {"q.weight_scale", "q.weight_scale_inv", "q.qweight", "q.weight_packed", "q.weight.absmax",
                           "gate_up_proj_blocks"}) {
    const auto found = check(kConfig, tiny_safetensors(name));
    ASSERT_TRUE(found) << name;
    EXPECT_NE(found->find("its weights are quantised"), std::string::npos) << *found;
    EXPECT_NE(found->find("cannot be read"), std::string::npos) << *found;
  }
}

TEST(Quantisation, NamesGgufFormatsThatCannotBeRead) {
  const Folder folder;
  const auto checkpoint = Checkpoint::open(folder.write("m.gguf", whole_gguf()));
  ASSERT_TRUE(checkpoint.ok());
  const auto found = unsupported_quantisation(*checkpoint);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->find("1 of its 8 tensors are in Q8_K (the first is 'blk.0.ffn.weight'), which cannot be read"), 0u)
      << *found;
  const auto fine = Checkpoint::open(folder.write("n.gguf", RawGguf(1).tensor("a", {32}, 39, 0).pad().data(17).text()));
  ASSERT_TRUE(fine.ok());
  EXPECT_EQ(unsupported_quantisation(*fine), std::nullopt) << "MXFP4 in GGUF is read";
}

// Real models, where there are any: MILLRACE_TEST_MODELS="path:path". Every tensor must be readable and finite.
TEST(RealModels, AreReadable) {
  const char* list = std::getenv("MILLRACE_TEST_MODELS");
  if (list == nullptr) GTEST_SKIP() << "MILLRACE_TEST_MODELS names none";
  std::istringstream paths(list);
  for (std::string path; std::getline(paths, path, ':');) {
    const auto checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_EQ(unsupported_quantisation(*checkpoint), std::nullopt);
    for (const StoredTensor& tensor : checkpoint->tensors()) {
      std::vector<float> row(static_cast<size_t>(tensor.cols()));
      for (int64_t i = 0; i < tensor.rows(); ++i) {
        ASSERT_TRUE(read_rows(tensor, i, 1, row).ok()) << tensor.name;
        for (const float number : row) ASSERT_TRUE(std::isfinite(number)) << tensor.name << " row " << i;
      }
    }
  }
}

}  // namespace
}  // namespace millrace
