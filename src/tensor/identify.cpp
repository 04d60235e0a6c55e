#include "tensor/identify.h"

#include <algorithm>
#include <cctype>
#include <cstdint>

namespace millrace {
namespace {

constexpr std::string_view kLfsPrefix = "version https://git-lfs.github.com/spec/";

struct Signature {
  size_t offset;
  std::string_view bytes;
  std::string_view sentence;
};

using namespace std::string_view_literals;

constexpr std::string_view kPickle =
    "a PyTorch pickle checkpoint (.bin, .pt, .pth), which can carry code and is never loaded: use the model's "
    "safetensors "
    "files, or convert it with the tool that made it";
constexpr std::string_view kZip =
    "a zip archive, most likely a PyTorch pickle checkpoint (.bin, .pt, .pth), which can carry code and is never "
    "loaded: use "
    "the model's safetensors files, or convert it with the tool that made it";
constexpr std::string_view kOldGgml =
    "a model in a ggml format from before GGUF, which is no longer read: download the model as GGUF";
constexpr std::string_view kArchive = "a compressed archive: unpack it and give the model file or directory inside";

// Checked in this order. The four-letter marks of old ggml files lie reversed, because they were written as integers.
constexpr Signature kSignatures[] = {
    {0, "PK\x03\x04"sv, kZip},
    {0, "\x80\x02"sv, kPickle},
    {0, "\x80\x03"sv, kPickle},
    {0, "\x80\x04"sv, kPickle},
    {0, "\x80\x05"sv, kPickle},
    {0, "lmgg"sv, kOldGgml},
    {0, "fmgg"sv, kOldGgml},
    {0, "tjgg"sv, kOldGgml},
    {0, "algg"sv, "a LoRA adapter in a ggml format from before GGUF, which is no longer read"sv},
    {0, "\x1f\x8b"sv, kArchive},
    {0, "\x28\xb5\x2f\xfd"sv, kArchive},
    {0, "7z\xbc\xaf\x27\x1c"sv, kArchive},
    {0,
     "\xfd"
     "7zXZ"sv,
     kArchive},
    {257, "ustar"sv, kArchive},
    {0, "\x89HDF\r\n"sv, "a Keras or HDF5 file, which is not read: use the model's safetensors files or a GGUF"sv},
    {4, "TFL3"sv, "a TensorFlow Lite model, which is not read: use the model's safetensors files or a GGUF"sv},
    {0, "\x93NUMPY"sv, "a NumPy array, not a model: give a GGUF file or a Hugging Face directory"sv},
    {0,
     "\x7f"
     "ELF"sv,
     "a program, not a model: give a GGUF file or a Hugging Face directory"sv},
};

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

// ONNX files are protocol buffers: field 1 (the version, a small number), then field 2 (the producer's name) or 7 or 8.
bool looks_like_onnx(std::string_view head) {
  return head.size() > 4 && head[0] == '\x08' && head[1] > 0 && head[1] < 32 &&
         (head[2] == '\x12' || head[2] == '\x3a' || head[2] == '\x42');
}

bool is_text(std::string_view head) {
  return std::all_of(head.begin(), head.end(), [](unsigned char c) { return c >= 32 || (c >= 9 && c <= 13); });
}

Error lfs_error(std::string_view text) {
  std::string size;
  if (const size_t at = text.find("\nsize "); at != std::string_view::npos) {
    for (size_t i = at + 6; i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) && size.size() < 20;
         ++i) {
      size += text[i];
    }
  }
  return error(
      Code::invalid,
      "is a Git LFS pointer of {} bytes, not the model itself{}: run 'git lfs pull' where it was cloned, or download "
      "the file itself",
      text.size(), size.empty() ? "" : " (which has " + size + " bytes)");
}

// Nothing of the file is quoted: it may be a link to one that whoever reads the message must not see.
Error text_error(std::string_view head, size_t bytes) {
  const size_t start = std::min(head.find_first_not_of(" \t\r\n"), head.size());
  const std::string_view body = head.substr(start);
  const std::string begin = lower(body.substr(0, 16));
  if (begin.starts_with("<!doctype") || begin.starts_with("<html") || begin.starts_with("<?xml") ||
      begin.starts_with("<head")) {
    return error(Code::invalid,
                 "is a web page saved under a model's name ({} bytes): the download needs another address or a login",
                 bytes);
  }
  if (begin.starts_with("{")) {
    return error(Code::invalid,
                 "is a JSON file ({} bytes), not weights: give the directory that holds it and the *.safetensors files",
                 bytes);
  }
  return error(Code::invalid, "is a text file ({} bytes), not a model: download the model again", bytes);
}

}  // namespace

bool is_lfs_pointer(std::string_view text) { return text.starts_with(kLfsPrefix); }

Error unknown_file(std::span<const std::byte> file) {
  const std::string_view head(reinterpret_cast<const char*>(file.data()), std::min<size_t>(file.size(), 512));
  if (head.empty())
    return error(Code::invalid, "is empty: the download did not begin or was interrupted; download it again");
  if (is_lfs_pointer(head)) return lfs_error(head);
  for (const Signature& signature : kSignatures) {
    if (head.size() >= signature.offset && head.substr(signature.offset).starts_with(signature.bytes)) {
      return error(Code::unsupported, "is {}", signature.sentence);
    }
  }
  if (looks_like_onnx(head)) {
    return error(Code::unsupported, "is an ONNX model, which is not read: use the model's safetensors files or a GGUF");
  }
  if (is_text(head)) return text_error(head, file.size());
  return error(Code::invalid,
               "is neither a GGUF nor a safetensors file ({} bytes): if it should be one, download it again",
               file.size());
}

std::string in_quotes(std::string_view name) {
  constexpr size_t kShown = 80;
  std::string out = "'";
  for (const char c : name.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 32 && byte < 127 && c != '\\' && c != '\'') {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(byte));
    }
  }
  out += name.size() > kShown ? "...'" : "'";
  return out;
}

}  // namespace millrace
