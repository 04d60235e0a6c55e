#include <chrono>

#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/embed/flags.h"
#include "apps/run/flags.h"
#include "apps/run/report.h"
#include "base/json.h"
#include "model/pool.h"

namespace millrace::apps {
namespace {

Result<std::vector<EncodeInput>> inputs_of(const Arguments& arguments, const Embedder& embedder) {
  std::vector<EncodeInput> inputs;
  if (arguments.given("ids")) {
    if (arguments.given("prompt") || arguments.given("file"))
      return error(Code::invalid, "--ids is the whole text; it goes with neither --prompt nor --file");
    std::vector<Token> tokens;
    for (int64_t id : arguments.integers("ids")) tokens.push_back(static_cast<Token>(id));
    TRY(EncodeInput one, embedder.input(std::move(tokens)));
    inputs.push_back(std::move(one));
    return inputs;
  }
  std::string prompt;
  if (arguments.given("prompt-name")) {
    TRY(prompt, embedder.prompt_named(arguments.text("prompt-name")));
  }
  TRY(const std::vector<std::string> texts, texts_of(arguments, "prompt"));
  for (size_t i = 0; i < texts.size(); ++i) {
    auto one = embedder.input(texts[i], {.prompt = prompt, .truncate = arguments.toggle("truncate")});
    if (!one.ok()) return within(fmt::format("text {}", i + 1), std::move(one).error());
    inputs.push_back(std::move(*one));
  }
  if (inputs.empty()) return error(Code::invalid, "there is no text to embed");
  return inputs;
}

void print_vector(const Terminal& terminal, const std::vector<float>& vector) {
  std::string line;
  for (const float value : vector) line += fmt::format("{}{:.8g}", line.empty() ? "" : " ", value);
  terminal.write_out(line + "\n");
}

Result<int> run_embed(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  TRY(LoadedEmbedder loaded, load_embedder(arguments, arguments.text("pooling"), false));
  Embedder& embedder = *loaded.embedder;
  const auto dimensions = static_cast<int32_t>(arguments.integer("dimensions"));
  TRY_VOID(embedder.check_dimensions(dimensions));
  TRY(const std::vector<EncodeInput> inputs, inputs_of(arguments, embedder));
  int64_t tokens = 0;
  for (const EncodeInput& each : inputs) tokens += static_cast<int64_t>(each.tokens.size());
  const auto start = std::chrono::steady_clock::now();
  TRY(const auto vectors, embedder.vectors(inputs, dimensions));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::string_view pooling = pooling_name(embedder.encoder().pooling());
  if (!arguments.toggle("json")) {
    for (const auto& vector : vectors) print_vector(terminal, vector);
    terminal.note("{}, {}, pooling {}, {:.0f} tokens a second", counted(static_cast<int64_t>(inputs.size()), "text"),
                  counted(tokens, "token"), pooling, seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0);
    return kExitOk;
  }
  JsonArray data;
  for (size_t i = 0; i < vectors.size(); ++i) {
    data.push_back(JsonObject{{"index", i},
                              {"tokens", inputs[i].tokens.size()},
                              {"embedding", JsonArray(vectors[i].begin(), vectors[i].end())}});
  }
  terminal.print("{}\n", to_text(JsonObject{{"model", valid_utf8(loaded.model->checkpoint().path().string())},
                                            {"pooling", pooling},
                                            {"normalised", embedder.normalised()},
                                            {"dimensions", vectors[0].size()},
                                            {"data", std::move(data)},
                                            {"tokens", tokens},
                                            {"seconds", seconds},
                                            {"memory", memory_json(loaded.model->backend())}}));
  return kExitOk;
}

}  // namespace

Verb embed_verb() {
  return {
      .name = "embed",
      .summary = "turn texts into vectors",
      .group = "Use a model",
      .flags = joined({hub_flags(),
                       {model_flag(),
                        {.name = "prompt",
                         .alias = "-p --text",
                         .kind = Kind::text,
                         .value = "TEXT",
                         .many = Many::repeated,
                         .help = "a text; may be given several times"},
                        {.name = "file",
                         .alias = "-f",
                         .kind = Kind::path,
                         .value = "FILE",
                         .help = "a text a line, or with the ending .jsonl a JSON string a line; - is standard input"},
                        {.name = "ids",
                         .kind = Kind::integer,
                         .value = "ID",
                         .many = Many::commas,
                         .least = 0,
                         .most = 1 << 30,
                         .help = "token ids as the whole text"},
                        {.name = "pooling",
                         .kind = Kind::text,
                         .value = "HOW",
                         .choices = "cls|mean|last|max|mean_sqrt_len|weightedmean",
                         .help = "how the rows of a text become one vector (default: as the model's files say, else "
                                 "mean for encoders and last for models that write)"},
                        {.name = "dimensions",
                         .kind = Kind::integer,
                         .value = "N",
                         .otherwise = "0",
                         .least = 0,
                         .most = 1 << 20,
                         .help = "keep the first N numbers and bring them to length 1; 0: all"},
                        {.name = "prompt-name",
                         .kind = Kind::text,
                         .value = "NAME",
                         .help = "put the prompt of that name from the model's files in front of each text (query)"}},
                       encoder_flags()}),
      .examples = {{"embed -m ./bge-small-en -p 'A text' -p 'Another'", "a line of numbers for each"},
                   {"embed -m ./e5 -f passages.txt --prompt-name passage --json", "many texts, for a script"}},
      .notes =
          "Texts are computed whole, several in a step and without padding; a text's numbers do not depend on the "
          "others. Vectors have length 1 unless the model's modules.json has no Normalize.",
      .run = run_embed};
}

}  // namespace millrace::apps
