#include <limits>
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

Result<Token> to_token(int64_t id, const Tokenizer& tokenizer) {
  if (id >= 0 && id < tokenizer.size()) return static_cast<Token>(id);
  return error(Code::invalid, "{} is no token: this model's ids go from 0 to {}", id, tokenizer.size() - 1);
}

Result<std::vector<Token>> from_json(const Json& json, const Tokenizer& tokenizer) {
  const auto* array = json.if_array();
  if (array == nullptr) return error(Code::invalid, "should be a JSON array of token ids");
  std::vector<Token> tokens;
  for (const Json& item : *array) {
    if (!item.is_int64())
      return error(Code::invalid, "should be a JSON array of whole numbers, but holds {}", to_text(item));
    TRY(Token token, to_token(item.get_int64(), tokenizer));
    tokens.push_back(token);
  }
  return tokens;
}

Result<int> run_detokenize(const Arguments& arguments) {
  TRY(std::filesystem::path path, model_path(arguments));
  TRY(Tokenizer tokenizer, open_tokenizer(path));
  const Terminal& terminal = arguments.terminal();
  auto decode = [&](const std::vector<Token>& tokens, bool line) {
    std::string text = tokenizer.decode(tokens, {.skip_special = arguments.toggle("skip-special")});
    if (arguments.toggle("json")) text = json_string(text) + "\n";
    terminal.write_out(text);
    if (!arguments.toggle("json") && (line || terminal.out_is_tty())) terminal.write_out("\n");
  };
  if (arguments.given("ids")) {
    std::vector<Token> tokens;
    for (int64_t id : arguments.integers("ids")) {
      TRY(Token token, to_token(id, tokenizer));
      tokens.push_back(token);
    }
    decode(tokens, false);
    return kExitOk;
  }
  std::string file = arguments.given("file") ? arguments.text("file") : "standard input";
  TRY(std::string text, arguments.given("file") ? read_input(file) : read_standard_input("--ids or --file"));
  bool several = text.find('\n') + 1 < text.size() && text.find('\n') != std::string::npos;
  TRY_VOID(for_each_line(text, file, [&](const Json& json) -> Result<void> {
    TRY(std::vector<Token> tokens, from_json(json, tokenizer));
    decode(tokens, several);
    return {};
  }));
  return kExitOk;
}

}  // namespace

Verb detokenize_verb() {
  return {
      .name = "detokenize",
      .summary = "turn token ids back into text",
      .group = "Text and tokens",
      .flags = {model_flag(),
                {.name = "ids", .kind = Kind::integer, .value = "1,2,3", .many = Many::commas, .help = "the token ids"},
                {.name = "file",
                 .alias = "-f",
                 .kind = Kind::path,
                 .value = "F",
                 .help = "a file with a JSON array of ids a line, - for standard input"},
                {.name = "skip-special", .help = "leave special tokens out of the text"},
                {.name = "json", .help = "print one JSON string a line"}},
      .examples = {{"detokenize -m model.gguf --ids 9906,1070", "the text of two tokens"},
                   {"tokenize -t 'Hello' --json | millrace detokenize", "there and back"}},
      .notes =
          "Prints exactly the text: no line break is added unless the output is a terminal or there are several "
          "lines.\n"
          "Without --ids and --file, arrays are read from standard input.",
      .run = run_detokenize};
}

}  // namespace millrace::apps
