#include "apps/run/adapters.h"

#include <charconv>
#include <filesystem>

#include "apps/cli/flags.h"
#include "apps/cli/terminal.h"
#include "base/human.h"
#include "model/adapter.h"

namespace millrace::apps {
namespace {

// What clients call an adapter that was given without a name: its directory, or its file without what follows the dot.
std::string name_of(const std::filesystem::path& path) {
  std::filesystem::path last = path.has_filename() ? path : path.parent_path();
  if (last.filename() == "adapter_model.safetensors") last = last.parent_path();
  return last.extension() == ".gguf" ? last.stem().string() : last.filename().string();
}

}  // namespace

std::vector<Flag> adapter_flags() {
  Flag plain =
      by_commas(path_flag("lora", "[NAME=]PATH", "a LoRA adapter: a PEFT directory or a GGUF file; may repeat"));
  plain.alias = "--lora-modules";
  return {plain, by_commas(path_flag("lora-scaled", "[NAME=]PATH:SCALE", "the same, its changes times SCALE"))};
}

Result<AdapterAsk> adapter_ask(std::string_view text, bool scaled) {
  AdapterAsk ask;
  if (scaled) {
    const size_t colon = text.rfind(':');
    const std::string_view number = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
    const auto [end, failed] = std::from_chars(number.data(), number.data() + number.size(), ask.strength);
    if (number.empty() || failed != std::errc() || end != number.data() + number.size())
      return error(Code::invalid, "--lora-scaled {}: expected PATH:SCALE, as in story-lora:0.5", text);
    text = text.substr(0, colon);
  }
  const size_t equals = text.find('=');
  if (equals != std::string_view::npos && equals > 0 && text.substr(0, equals).find('/') == std::string_view::npos) {
    ask.name = text.substr(0, equals);
    text = text.substr(equals + 1);
  }
  ask.path = text;
  if (ask.name.empty()) ask.name = name_of(ask.path);
  if (ask.name.empty()) return error(Code::invalid, "--lora {}: give it a name, as in NAME={}", text, text);
  return ask;
}

Result<std::vector<AdapterAsk>> adapters_of(const Arguments& arguments) {
  std::vector<AdapterAsk> asks;
  for (const bool scaled : {false, true}) {
    for (const std::string& text : arguments.texts(scaled ? "lora-scaled" : "lora")) {
      TRY(AdapterAsk ask, adapter_ask(text, scaled));
      asks.push_back(std::move(ask));
    }
  }
  return asks;
}

Result<void> use_adapters(const std::vector<AdapterAsk>& asks, const Terminal& terminal, Executor& executor) {
  if (asks.empty()) return {};
  std::vector<Adapter> read;
  for (const AdapterAsk& ask : asks) {
    TRY(Adapter adapter, read_adapter(ask.path, executor.model().spec()));
    terminal.note("adapter {}: rank {}, {}, {}", ask.name, adapter.rank(),
                  counted(static_cast<int64_t>(adapter.parts.size()), "matrix", "matrices"),
                  human_bytes(static_cast<uint64_t>(adapter.bytes())));
    read.push_back(std::move(adapter));
  }
  float strength = asks.front().strength;
  if (read.size() > 1) {
    std::vector<WeightedAdapter> all;
    for (size_t i = 0; i < read.size(); ++i) all.push_back({&read[i], asks[i].strength});
    TRY(Adapter sum, joined_adapter(all));
    read.front() = std::move(sum);
    strength = 1;
  }
  TRY(const int place, executor.load_adapter(read.front()));
  executor.use_adapter(place, strength);
  return {};
}

Result<void> use_adapters(const Arguments& arguments, Executor& executor) {
  TRY(const std::vector<AdapterAsk> asks, adapters_of(arguments));
  return use_adapters(asks, arguments.terminal(), executor);
}

}  // namespace millrace::apps
