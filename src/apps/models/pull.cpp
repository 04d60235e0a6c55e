#include "apps/cli/flags.h"
#include "apps/cli/model_path.h"
#include "apps/cli/summary.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"

namespace millrace::apps {
namespace {

Result<int> run_pull(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  for (const std::string& typed : arguments.operands("NAME")) {
    TRY(const LocalModel model, pull_model(arguments, typed, static_cast<int>(arguments.integer("retries"))));
    terminal.note("pulled  {} ({}) into {}", printable(model.name), human_bytes(model.bytes),
                  printable(model.folder.string()));
    terminal.print("{}\n", printable(model.name));
    // Better to hear now than when it is wanted that it cannot be used.
    auto checkpoint = Checkpoint::open(model.model);
    if (!checkpoint.ok()) return within("what came cannot be read", checkpoint.error());
    if (auto refused = unsupported_quantisation(*checkpoint)) terminal.warn("{}", printable(*refused));
    std::error_code failed;
    const bool foreign = std::filesystem::exists(model.folder / "template.txt", failed);
    if (foreign && !checkpoint->chat_template())
      terminal.warn(
          "the registry's template is in Go's syntax, which is not read, and the file has none of its own: `chat` "
          "needs another file of this model");
  }
  return kExitOk;
}

}  // namespace

Verb pull_verb() {
  return {.name = "pull",
          .summary = "fetch a model by its name",
          .group = "Look at models",
          .operands = {{.name = "NAME",
                        .many = true,
                        .help = "OWNER/NAME[:QUANT][@REVISION] of a hub, its address, NAME[:TAG] of Ollama's library, "
                                "or HOST/OWNER/NAME[:TAG] of another registry"}},
          .flags = {ca_file_flag(), integer_flag("retries", "", "5", 0, 1000,
                                                 "tries after a transfer broke off and brought nothing more")},
          .examples = {{"pull unsloth/Qwen3-0.6B-GGUF:Q4_K_M", "one quantisation of a repository of GGUF files"},
                       {"pull HuggingFaceTB/SmolLM2-135M-Instruct", "safetensors, tokenizer and configuration"},
                       {"pull llama3.2:1b", "from Ollama's library"},
                       {"pull https://huggingface.co/OWNER/NAME/resolve/main/FILE.gguf", "one file"}},
          .notes =
              "OWNER/NAME is asked of https://huggingface.co, or of the hub at HF_ENDPOINT; HF_TOKEN is sent to that "
              "host only. Only what is needed is fetched, never pickles. Sizes and digests are checked, and a model "
              "appears whole or not at all; what came before a failure or Ctrl-C is kept and gone on from. Models lie "
              "in --models-dir (MILLRACE_MODELS_DIR). See docs/models.md.",
          .run = run_pull};
}

}  // namespace millrace::apps
