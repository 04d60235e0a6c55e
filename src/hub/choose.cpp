// Which files of a repository make a model.
#include <algorithm>
#include <map>

#include "base/human.h"
#include "hub/listing.h"

namespace millrace {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return out;
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// "x-00002-of-00005.gguf": the name without that, and whether there was any.
std::string without_part(std::string_view path, bool& split) {
  constexpr size_t kEnd = 15;  // "-00002-of-00005"
  std::string_view stem = path.substr(0, path.size() - 5);
  split = false;
  if (stem.size() <= kEnd) return std::string(stem);
  const std::string_view end = stem.substr(stem.size() - kEnd);
  const auto digits = [](std::string_view text) { return text.find_first_not_of("0123456789") == text.npos; };
  split = end[0] == '-' && digits(end.substr(1, 5)) && end.substr(6, 4) == "-of-" && digits(end.substr(10));
  return std::string(split ? stem.substr(0, stem.size() - kEnd) : stem);
}

struct GgufSet {
  std::string stem;
  std::string quantisation;  // empty if the name says none
  std::vector<RemoteFile> files;
  size_t parts = 1;  // as the names state
};

// Models among the GGUF files: those that are split count once, and projectors for images are none.
std::vector<GgufSet> gguf_sets(const std::vector<RemoteFile>& all) {
  std::map<std::string, GgufSet> sets;
  for (const RemoteFile& file : all) {
    const std::string name = lower(file_name(file.path));
    if (!name.ends_with(".gguf") || name.find("mmproj") != name.npos || name.find("imatrix") != name.npos) continue;
    bool split = false;
    const std::string stem = without_part(file.path, split);
    GgufSet& set = sets[stem];
    set.stem = stem;
    set.quantisation = quantisation_in(file.path).value_or("");
    if (split) set.parts = static_cast<size_t>(std::stoul(file.path.substr(file.path.size() - 10, 5)));
    set.files.push_back(file);
  }
  std::vector<GgufSet> out;
  for (auto& [stem, set] : sets) {
    std::sort(set.files.begin(), set.files.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
    out.push_back(std::move(set));
  }
  return out;
}

std::string known_quantisations(const std::vector<GgufSet>& sets) {
  std::string text;
  for (const GgufSet& set : sets) {
    uint64_t bytes = 0;
    for (const RemoteFile& file : set.files) bytes += file.size;
    if (!text.empty()) text += ", ";
    text +=
        fmt::format("{} ({})", set.quantisation.empty() ? file_name(set.stem) : set.quantisation, human_bytes(bytes));
    if (text.size() > 600) return text + ", ...";
  }
  return text;
}

Result<ChosenFiles> chosen_gguf(const GgufSet& set) {
  if (set.files.size() != set.parts) {
    return error(Code::corrupt, "{} is split into {} files, but the repository has {} of them", set.stem, set.parts,
                 set.files.size());
  }
  ChosenFiles chosen{.files = set.files, .model = set.files.front().path, .tag = set.quantisation};
  if (chosen.tag.empty()) chosen.tag = "latest";
  return chosen;
}

Result<ChosenFiles> gguf_by_tag(const std::vector<GgufSet>& sets, std::string_view tag) {
  const GgufSet* found = nullptr;
  for (const GgufSet& set : sets) {
    if (lower(set.quantisation) != lower(tag) && lower(file_name(set.stem)) != lower(tag)) continue;
    if (found != nullptr)
      return error(Code::invalid, "'{}' is in two files, {} and {}: name the file, as in OWNER/NAME/FILE.gguf", tag,
                   found->files.front().path, set.files.front().path);
    found = &set;
  }
  if (found == nullptr)
    return error(Code::not_found, "the repository has no GGUF file '{}'; it has {}", tag, known_quantisations(sets));
  return chosen_gguf(*found);
}

Result<ChosenFiles> usual_gguf(const std::vector<GgufSet>& sets) {
  if (sets.size() == 1) return chosen_gguf(sets.front());
  for (std::string_view usual : {"Q4_K_M", "Q8_0", "Q4_0"}) {
    if (std::count_if(sets.begin(), sets.end(), [&](const auto& set) { return set.quantisation == usual; }) == 1)
      return gguf_by_tag(sets, usual);
  }
  return error(Code::invalid, "the repository has several models; say which, as in OWNER/NAME:QUANT: {}",
               known_quantisations(sets));
}

// What stands beside safetensors and is read, by us or by a person.
bool is_side_file(std::string_view path) {
  constexpr std::string_view kNames[] = {"config.json",
                                         "generation_config.json",
                                         "tokenizer.json",
                                         "tokenizer_config.json",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "vocab.json",
                                         "merges.txt",
                                         "vocab.txt",
                                         "tokenizer.model",
                                         "chat_template.jinja",
                                         "chat_template.json",
                                         "modules.json",
                                         "sentence_bert_config.json",
                                         "config_sentence_transformers.json",
                                         "model.safetensors.index.json",
                                         "quantize_config.json",
                                         "hf_quant_config.json",
                                         "adapter_config.json",
                                         "LICENSE",
                                         "LICENSE.txt",
                                         "LICENSE.md"};
  if (std::find(std::begin(kNames), std::end(kNames), path) != std::end(kNames)) return true;
  // Modules of sentence-transformers: 1_Pooling/config.json, 2_Dense/model.safetensors.
  return path.size() > 2 && path[0] >= '0' && path[0] <= '9' && path[1] == '_' &&
         (path.ends_with("/config.json") || path.ends_with("/model.safetensors"));
}

std::optional<ChosenFiles> safetensors_of(const std::vector<RemoteFile>& all) {
  auto at_top = [](const RemoteFile& file) { return file.path.find('/') == std::string::npos; };
  auto is_weights = [&](const RemoteFile& file) { return at_top(file) && file.path.ends_with(".safetensors"); };
  // The same weights may be there twice; the makers' own layout ("consolidated") is the one not read.
  const bool usual = std::any_of(all.begin(), all.end(), [&](const auto& file) {
    return is_weights(file) && (file.path.starts_with("model") || file.path.starts_with("adapter_model"));
  });
  ChosenFiles chosen{.tag = "latest"};
  bool weights = false, config = false;
  for (const RemoteFile& file : all) {
    const bool weight = is_weights(file) && (!usual || !file.path.starts_with("consolidated"));
    if (!weight && !is_side_file(file.path)) continue;
    weights |= weight;
    config |= file.path == "config.json" || file.path == "adapter_config.json";
    chosen.files.push_back(file);
  }
  return weights && config ? std::optional(std::move(chosen)) : std::nullopt;
}

bool has_pickles(const std::vector<RemoteFile>& all) {
  return std::any_of(all.begin(), all.end(), [](const RemoteFile& file) {
    return file.path.ends_with(".bin") || file.path.ends_with(".pt") || file.path.ends_with(".pth") ||
           file.path.ends_with(".ckpt");
  });
}

bool is_quantisation(std::string_view word) {
  const std::string text = lower(word);
  if (text == "bf16" || text == "f16" || text == "f32" || text == "fp16" || text == "mxfp4") return true;
  const size_t digit = text.starts_with("iq") || text.starts_with("tq") ? 2 : text.starts_with("q") ? 1 : 0;
  return digit > 0 && text.size() > digit && text[digit] >= '1' && text[digit] <= '8' &&
         (text.size() == digit + 1 || text[digit + 1] == '_') &&
         text.find_first_not_of("0123456789_abcdefghijklmnopqrstuvwxyz") == text.npos;
}

}  // namespace

std::optional<std::string> quantisation_in(std::string_view path) {
  bool split = false;
  if (!lower(path).ends_with(".gguf")) return std::nullopt;
  const std::string stem = without_part(path, split);
  std::string_view rest = file_name(stem);
  // The last word that is one: names have words like "Q" elsewhere too.
  while (!rest.empty()) {
    const size_t cut = rest.find_last_of("-.");
    const std::string_view word = cut == rest.npos ? rest : rest.substr(cut + 1);
    if (is_quantisation(word)) {
      const std::string_view before = cut == rest.npos ? "" : rest.substr(0, cut);
      std::string quantisation(word);
      for (char& c : quantisation) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
      return before.ends_with("-UD") ? "UD-" + quantisation : quantisation;
    }
    if (cut == rest.npos) break;
    rest = rest.substr(0, cut);
  }
  return std::nullopt;
}

Result<ChosenFiles> choose_files(const std::vector<RemoteFile>& all, std::string_view tag, std::string_view file) {
  const std::vector<GgufSet> sets = gguf_sets(all);
  if (!file.empty()) {
    for (const GgufSet& set : sets) {
      if (std::any_of(set.files.begin(), set.files.end(), [&](const auto& f) { return f.path == file; }))
        return chosen_gguf(set);
    }
    return error(Code::not_found, "the repository has no file '{}'", file);
  }
  if (!tag.empty() && tag != "latest") {
    if (sets.empty()) return error(Code::not_found, "the repository has no GGUF files, so ':{}' names nothing", tag);
    return gguf_by_tag(sets, tag);
  }
  if (auto chosen = safetensors_of(all)) return std::move(*chosen);
  if (!sets.empty()) return usual_gguf(sets);
  if (has_pickles(all)) {
    return error(Code::unsupported,
                 "the repository has its weights only as pickles (.bin, .pt), which run code when they are read: look "
                 "for one with safetensors or GGUF files");
  }
  return error(Code::not_found, "the repository has neither safetensors with a config.json nor GGUF files");
}

}  // namespace millrace
