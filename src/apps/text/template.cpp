#include "text/template/template.h"

#include "apps/cli/input.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/text/open_tokenizer.h"
#include "base/file.h"
#include "base/json.h"
#include "tensor/checkpoint.h"
#include "text/calls.h"

namespace millrace::apps {
namespace {

struct Source {
  std::string text;
  std::string name;           // for messages
  JsonObject variables = {};  // what a model adds to its own template
};

// A model's template knows its special tokens by name, as in transformers.
JsonObject token_variables(const std::filesystem::path& path) {
  JsonObject variables;
  auto tokenizer = open_tokenizer(path);
  if (!tokenizer.ok()) return variables;
  const SpecialTokens& special = tokenizer->special();
  for (auto [name, id] : {std::pair{"bos_token", special.begin},
                          {"eos_token", special.end},
                          {"pad_token", special.pad},
                          {"unk_token", special.unknown}}) {
    if (id >= 0) variables[name] = valid_utf8(tokenizer->token_text(id));
  }
  return variables;
}

Result<Source> source_of(const Arguments& arguments) {
  if (arguments.given("template")) {
    TRY(std::string text, read_file(arguments.text("template"), size_t{16} << 20));
    return Source{.text = std::move(text), .name = arguments.text("template")};
  }
  TRY(std::filesystem::path path, model_path(arguments));
  TRY(Checkpoint checkpoint, Checkpoint::open(path));
  if (!checkpoint.chat_template()) {
    return error(Code::not_found, "{}: the model has no chat template; give one with --template F.jinja",
                 path.string());
  }
  return Source{.text = *checkpoint.chat_template(),
                .name = path.string() + ": chat template",
                .variables = token_variables(path)};
}

Result<int> run_template(const Arguments& arguments) {
  if (arguments.given("template") && !arguments.given("input") && arguments.toggle("show")) {
    return wrong_use(arguments, "--show prints a model's template; --template is a file you have already");
  }
  TRY(Source source, source_of(arguments));
  const Terminal& terminal = arguments.terminal();
  if (arguments.toggle("show")) {
    terminal.write_out(terminal.out_is_tty() ? printable(source.text, true) + "\n" : source.text);
    return kExitOk;
  }
  if (arguments.toggle("calls")) {
    auto made = ChatTemplate::from({{{"default", source.text}}, source.variables});
    if (!made.ok()) return within(source.name, std::move(made).error());
    terminal.print("{}\n", to_pretty_text(calls_json(find_calls(*made))));
    return kExitOk;
  }
  auto parsed = Template::parse(source.text);
  if (!parsed.ok()) return within(source.name, std::move(parsed).error());

  std::string input = arguments.given("input") ? arguments.text("input") : "-";
  TRY(std::string text, read_input(input));
  auto json = parse_json(text);
  if (!json.ok()) return within(input, std::move(json).error());
  if (!json->is_object()) {
    return error(Code::invalid,
                 "{}: should be a JSON object whose keys are the template's variables (messages, tools, ...)", input);
  }
  for (const auto& member : json->get_object()) source.variables[member.key()] = member.value();
  auto rendered = parsed->render(Json(std::move(source.variables)), RenderLimits(), local_now());
  if (!rendered.ok()) return within(source.name, std::move(rendered).error());
  terminal.write_out(*rendered);
  if (terminal.out_is_tty() && !rendered->ends_with('\n')) terminal.write_out("\n");
  return kExitOk;
}

}  // namespace

Verb template_verb() {
  return {
      .name = "template",
      .summary = "render a chat template, as the model would see a conversation",
      .group = "Text and tokens",
      .flags =
          {model_flag(),
           {.name = "template",
            .kind = Kind::path,
            .value = "F.jinja",
            .help = "a template file instead of the model's own"},
           {.name = "input",
            .alias = "-i",
            .kind = Kind::path,
            .value = "F.json",
            .help =
                "an object with messages, tools, add_generation_prompt, ...: every key is a variable of the template; "
                "- or none for standard input"},
           {.name = "show", .help = "print the model's template itself"},
           {.name = "calls",
            .help = "print how the template writes calls of tools, found by rendering some; style none: not in a way "
                    "that is understood"}},
      .examples = {{"template -m model.gguf --input chat.json", "the exact text a model would read"},
                   {"template --template chat.jinja --input chat.json", "try a template of your own"},
                   {"template -m model.gguf --show", "see the template"},
                   {"template --template chat.jinja --calls", "marks around calls, names, arguments and reasoning"}},
      .notes =
          "Prints exactly the text; a line break is added only on a terminal. With -m, the model's bos_token, "
          "eos_token, "
          "pad_token and unk_token are variables too, unless the input sets them.",
      .run = run_template};
}

}  // namespace millrace::apps
