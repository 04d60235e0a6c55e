#include <string>
#include <vector>

#include "apps/cli/input.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/text/open_tokenizer.h"
#include "text/tokenizer.h"

namespace millrace::apps {
namespace {

void print_ids(const Terminal& terminal, const std::vector<Token>& tokens) {
  std::string line = "[";
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) line += ',';
    line += fmt::format_int(tokens[i]).c_str();
  }
  line += "]\n";
  terminal.write_out(line);
}

void print_tokens(const Terminal& terminal, const Tokenizer& tokenizer, const std::vector<Token>& tokens) {
  for (Token token : tokens) {
    bool special = tokenizer.is_special(token);
    std::string text = special ? std::string(tokenizer.token_text(token)) : tokenizer.token_bytes(token);
    terminal.print("{:>7}  {}\n", token, terminal.out_paint(special ? Style::cyan : Style::plain, json_string(text)));
  }
  terminal.note("{}", counted(static_cast<int64_t>(tokens.size()), "token"));
}

Result<std::string> text_of(const Arguments& arguments) {
  if (arguments.given("text")) return arguments.text("text");
  if (arguments.given("file")) return read_input(arguments.text("file"));
  return read_standard_input("--text or --file");
}

Result<int> run_tokenize(const Arguments& arguments) {
  if (arguments.given("text") && arguments.given("file")) {
    return wrong_use(arguments, "--text and --file exclude each other: give one of them");
  }
  TRY(std::filesystem::path path, model_path(arguments));
  TRY(Tokenizer tokenizer, open_tokenizer(path));
  TRY(std::string text, text_of(arguments));
  EncodeOptions options = {.parse_special = arguments.toggle("special"),
                           .add_special = arguments.toggle("add-special")};
  const Terminal& terminal = arguments.terminal();
  bool json = arguments.toggle("json");
  auto encode = [&](std::string_view part) -> Result<void> {
    TRY(const std::vector<Token> tokens, tokenizer.encode(part, options));
    json ? print_ids(terminal, tokens) : print_tokens(terminal, tokenizer, tokens);
    return {};
  };
  std::string file = arguments.given("text") ? "" : arguments.text("file");
  if (!file.ends_with(".jsonl")) {
    TRY_VOID(encode(text));
    return kExitOk;
  }
  TRY_VOID(for_each_line(text, file, [&](const Json& line) -> Result<void> {
    const auto* string = line.if_string();
    if (string == nullptr)
      return error(Code::invalid, "should be a JSON string (a file ending in .jsonl holds one a line)");
    return encode(std::string_view(string->data(), string->size()));
  }));
  return kExitOk;
}

}  // namespace

Verb tokenize_verb() {
  return {
      .name = "tokenize",
      .summary = "turn text into the tokens a model sees",
      .group = "Text and tokens",
      .flags = {model_flag(),
                {.name = "text", .alias = "-t", .kind = Kind::text, .value = "T", .help = "the text"},
                {.name = "file",
                 .alias = "-f",
                 .kind = Kind::path,
                 .value = "F",
                 .help =
                     "a file with the text, - for standard input; one whose name ends in .jsonl holds a JSON string a "
                     "line, each tokenized by itself"},
                {.name = "special", .help = "recognise special tokens (<|im_end|>) that stand in the text"},
                {.name = "add-special", .help = "add the begin and end tokens the model wants"},
                {.name = "json", .help = "print one JSON array of ids a line"}},
      .examples = {{"tokenize -m model.gguf --text 'Hello there'", "see how a text is cut"},
                   {"tokenize -m ./Llama-3.2-1B --file texts.jsonl --json", "ids of many texts, an array a line"},
                   {"tokenize -m tokenizer.json --special --text '<|im_start|>user'", "just a tokenizer file will do"}},
      .notes = "Without --text and --file the text is read from standard input.",
      .run = run_tokenize};
}

}  // namespace millrace::apps
