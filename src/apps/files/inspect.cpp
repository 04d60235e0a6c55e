#include "apps/cli/model_path.h"
#include "apps/cli/summary.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "backend/cpu/cpu.h"
#include "base/json.h"
#include "model/model.h"
#include "model/source.h"
#include "tensor/checkpoint.h"

namespace millrace::apps {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("{}", fmt::join(shape, " x ")); }

std::string meta_text(const MetaValue& value) {
  constexpr size_t kLongest = 80;
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<int64_t>(&value)) return fmt::format("{}", *number);
  if (const auto* number = std::get_if<uint64_t>(&value)) return fmt::format("{}", *number);
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{:g}", *number);
  if (const auto* array = std::get_if<MetaArray>(&value))
    return fmt::format("[{}]", counted(static_cast<int64_t>(array->size()), "value"));
  std::string text = printable(std::get<std::string_view>(value));
  return text.size() <= kLongest ? text
                                 : fmt::format("{}... ({} bytes)", printable(text.substr(0, kLongest)), text.size());
}

Json meta_json(const MetaValue& value) {
  if (const auto* array = std::get_if<MetaArray>(&value)) return JsonObject{{"array_of", array->size()}};
  if (const auto* text = std::get_if<std::string_view>(&value)) return Json(valid_utf8(*text));
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* number = std::get_if<int64_t>(&value)) return *number;
  if (const auto* number = std::get_if<uint64_t>(&value)) return *number;
  return std::get<double>(value);
}

void put(JsonObject& out, std::string_view key, const std::optional<int64_t>& value) {
  if (value) out[key] = *value;
}

Json to_json(const Checkpoint& checkpoint, const Summary& summary, bool tensors, bool metadata) {
  JsonObject out = {{"path", valid_utf8(checkpoint.path().string())},
                    {"format", summary.format},
                    {"files", summary.files},
                    {"file_bytes", summary.file_bytes},
                    {"architecture", valid_utf8(summary.architecture)},
                    {"name", valid_utf8(summary.name)},
                    {"license", valid_utf8(summary.license)},
                    {"parameters", summary.parameters}};
  put(out, "layers", summary.layers);
  put(out, "width", summary.width);
  put(out, "heads", summary.heads);
  put(out, "kv_heads", summary.kv_heads);
  put(out, "ffn_width", summary.ffn_width);
  put(out, "experts", summary.experts);
  put(out, "experts_used", summary.experts_used);
  put(out, "context", summary.context);
  put(out, "vocabulary", summary.vocabulary);
  out["tokenizer"] = summary.tokenizer.empty() ? Json() : Json(valid_utf8(summary.tokenizer));
  JsonObject special;
  for (const auto& [role, id] : summary.special_tokens) special[role] = id;
  out["special_tokens"] = std::move(special);
  out["chat_template"] = summary.chat_template_bytes.has_value();
  JsonArray types;
  for (const TypeShare& share : summary.types) {
    types.push_back(JsonObject{{"type", format(share.type).name},
                               {"tensors", share.tensors},
                               {"values", share.values},
                               {"bytes", share.bytes}});
  }
  out["types"] = std::move(types);
  if (summary.unusable) out["unusable"] = valid_utf8(*summary.unusable);
  if (metadata) {
    JsonObject entries;
    for (const MetaEntry& entry : checkpoint.metadata().entries())
      entries[valid_utf8(entry.key)] = meta_json(entry.value);
    out["metadata"] = std::move(entries);
  }
  if (tensors) {
    JsonArray rows;
    for (const StoredTensor& tensor : checkpoint.tensors()) {
      JsonArray shape(tensor.shape.begin(), tensor.shape.end());
      rows.push_back(JsonObject{{"name", valid_utf8(tensor.name)},
                                {"type", format(tensor.type).name},
                                {"shape", std::move(shape)},
                                {"bytes", tensor.bytes.size()}});
    }
    out["tensors"] = std::move(rows);
  }
  return out;
}

class Lines {
 public:
  explicit Lines(const Terminal& terminal) : terminal_(terminal) {}
  void add(std::string_view what, std::string_view value) const {
    if (!value.empty()) terminal_.print("  {:<15} {}\n", what, printable(value));
  }
  void add(std::string_view what, const std::optional<int64_t>& value) const {
    if (value) add(what, fmt::format("{}", *value));
  }

 private:
  const Terminal& terminal_;
};

void print_summary(const Terminal& terminal, const Checkpoint& checkpoint, const Summary& summary) {
  terminal.print("{}\n", terminal.out_paint(Style::bold, printable(checkpoint.path().string())));
  Lines lines(terminal);
  std::string parts = summary.files == 1 ? "" : fmt::format(" in {} files", summary.files);
  lines.add("format", fmt::format("{}{}, {}", summary.format, parts, human_bytes(summary.file_bytes)));
  lines.add("architecture", summary.architecture);
  lines.add("name", summary.name);
  lines.add("license", summary.license);
  lines.add("parameters",
            fmt::format("{} ({})", human_count(static_cast<uint64_t>(summary.parameters)), summary.parameters));
  lines.add("layers", summary.layers);
  lines.add("width", summary.width);
  if (summary.heads) {
    bool fewer = summary.kv_heads && summary.kv_heads != summary.heads;
    lines.add("heads", fewer ? fmt::format("{} ({} for keys and values)", *summary.heads, *summary.kv_heads)
                             : fmt::format("{}", *summary.heads));
  }
  lines.add("ffn width", summary.ffn_width);
  if (summary.experts && *summary.experts > 0) {
    lines.add("experts", fmt::format("{}, {} per token", *summary.experts, summary.experts_used.value_or(0)));
    if (const auto source = ModelSource::open(checkpoint); source.ok()) {
      const int64_t active = active_parameters(source->spec());
      lines.add("for a token",
                fmt::format("{} ({}) of the parameters", human_count(static_cast<uint64_t>(active)), active));
      if (source->layers_ahead() > 0) {
        lines.add("left out", source->layers_ahead() == 1
                                  ? "1 layer that predicts a further token"
                                  : fmt::format("{} layers that predict further tokens", source->layers_ahead()));
      }
    }
  }
  lines.add("context", summary.context ? counted(*summary.context, "token") : "");
  lines.add("vocabulary", summary.vocabulary ? counted(*summary.vocabulary, "token") : "");
  lines.add("tokenizer", summary.tokenizer.empty() ? "none" : summary.tokenizer);
  std::string special;
  for (const auto& [role, id] : summary.special_tokens)
    special += fmt::format("{}{} {}", special.empty() ? "" : ", ", role, id);
  lines.add("special tokens", special);
  lines.add("chat template",
            summary.chat_template_bytes ? fmt::format("yes, {} bytes", *summary.chat_template_bytes) : "none");
  if (summary.unusable)
    terminal.print("  {:<15} {}\n", "note", terminal.out_paint(Style::yellow, printable(*summary.unusable)));
}

void print_types(const Terminal& terminal, const Summary& summary) {
  if (summary.types.empty()) return;
  using Align = Table::Align;
  Table table(
      {{"type"}, {"tensors", Align::right}, {"values", Align::right}, {"size", Align::right}, {"bits", Align::right}});
  for (const TypeShare& share : summary.types) {
    double bits = share.values == 0 ? 0 : 8.0 * static_cast<double>(share.bytes) / static_cast<double>(share.values);
    table.row({std::string(format(share.type).name), fmt::format("{}", share.tensors),
               human_count(static_cast<uint64_t>(share.values)), human_bytes(share.bytes),
               fmt::format("{:.2f}", bits)});
  }
  terminal.print("\n");
  table.print(terminal);
}

void print_metadata(const Terminal& terminal, const Checkpoint& checkpoint) {
  Table table({{"key"}, {"value"}});
  for (const MetaEntry& entry : checkpoint.metadata().entries())
    table.row({printable(entry.key), meta_text(entry.value)});
  terminal.print("\n");
  table.print(terminal);
}

void print_tensors(const Terminal& terminal, const Checkpoint& checkpoint) {
  Table table({{"tensor"}, {"type"}, {"shape"}, {"size", Table::Align::right}});
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    table.row({printable(tensor.name), std::string(format(tensor.type).name), shape_text(tensor.shape),
               human_bytes(tensor.bytes.size())});
  }
  terminal.print("\n");
  table.print(terminal);
}

// What the weights would take here, if it is a model that can be run.
std::optional<std::string> in_memory(const Checkpoint& checkpoint) {
  const auto source = ModelSource::open(checkpoint);
  const auto backend = make_cpu_backend({.threads = 1});
  if (!source.ok() || !backend.ok()) return std::nullopt;
  return packed_note(checkpoint, plan_weights(*source, **backend).bytes());
}

Result<int> run_inspect(const Arguments& arguments) {
  std::filesystem::path path = arguments.operand("PATH");
  TRY(path, path.empty() ? model_path(arguments) : model_path(arguments, path.string()));
  TRY(Checkpoint checkpoint, Checkpoint::open(path));
  TRY(Summary summary, summarise(checkpoint));
  const Terminal& terminal = arguments.terminal();
  bool tensors = arguments.toggle("tensors"), metadata = arguments.toggle("metadata");
  if (arguments.toggle("json")) {
    terminal.print("{}\n", to_pretty_text(to_json(checkpoint, summary, tensors, metadata)));
    return kExitOk;
  }
  print_summary(terminal, checkpoint, summary);
  print_types(terminal, summary);
  if (auto note = in_memory(checkpoint)) terminal.print("\n{}\n", *note);
  if (metadata && checkpoint.kind() == Checkpoint::Kind::gguf) print_metadata(terminal, checkpoint);
  if (tensors) print_tensors(terminal, checkpoint);
  return kExitOk;
}

}  // namespace

Verb inspect_verb() {
  return {.name = "inspect",
          .summary = "show what is in a model file",
          .group = "Look at models",
          .operands = {{.name = "PATH",
                        .required = false,
                        .help = "a GGUF file, a Hugging Face directory or a safetensors file (default: --model)"}},
          .flags = {model_flag(),
                    {.name = "tensors", .help = "list every tensor with its type, shape and size"},
                    {.name = "metadata", .help = "list every key of a GGUF file"},
                    {.name = "json", .help = "as one JSON object"}},
          .examples = {{"inspect model.gguf", "architecture, size, context, tokenizer of a file"},
                       {"inspect ./Llama-3.2-1B --tensors", "every tensor of a Hugging Face directory"},
                       {"inspect model.gguf --json | jq .parameters", "for scripts"}},
          .run = run_inspect};
}

}  // namespace millrace::apps
