// What an answer must be, from the command line.
#include "apps/cli/input.h"
#include "apps/run/flags.h"
#include "base/json.h"

namespace millrace::apps {

std::vector<Flag> bound_flags() {
  return {
      {.name = "json-schema",
       .alias = "-jf --json-schema-file",
       .kind = Kind::path,
       .value = "FILE",
       .help = "the answer is JSON that fits the schema in FILE (2020-12 or draft 4 to 7)"},
      {.name = "regex", .kind = Kind::text, .value = "REGEX", .help = "the answer as a whole matches"},
      {.name = "grammar",
       .alias = "--grammar-file",
       .kind = Kind::path,
       .value = "FILE",
       .help = "the answer follows the rules in FILE: GBNF, or Lark where the name ends in .lark"},
      {.name = "choice",
       .kind = Kind::text,
       .value = "TEXT",
       .many = Many::repeated,
       .help = "the answer is one of these texts (give it several times)"},
  };
}

Result<std::shared_ptr<Constraint>> constraint_of(const Arguments& arguments, Bounds& bounds,
                                                  const BoundOptions& options) {
  GrammarSource source;
  int given = 0;
  for (const char* flag : {"json-schema", "regex", "grammar", "choice"}) given += arguments.given(flag) ? 1 : 0;
  if (given == 0) return std::shared_ptr<Constraint>();
  if (given > 1) return error(Code::invalid, "give one of --json-schema, --regex, --grammar and --choice");
  if (arguments.integer("min-tokens") > 0 || arguments.toggle("ignore-eos")) {
    return error(Code::invalid, "--min-tokens and --ignore-eos do not go with a grammar, which says where to end");
  }
  if (arguments.given("json-schema")) {
    TRY(source.text, read_input(arguments.text("json-schema")));
  } else if (arguments.given("regex")) {
    source.kind = GrammarKind::regex;
    source.text = arguments.text("regex");
  } else if (arguments.given("grammar")) {
    const std::string file = arguments.text("grammar");
    source.kind = file.ends_with(".lark") ? GrammarKind::lark : GrammarKind::gbnf;
    TRY(source.text, read_input(file));
  } else {
    source.kind = GrammarKind::choice;
    JsonArray texts;
    for (const std::string& text : arguments.texts("choice")) texts.push_back(Json(text));
    source.text = to_text(Json(std::move(texts)));
  }
  TRY(BoundAnswer bound, bounds.bind(source, options));
  return std::move(bound.constraint);
}

}  // namespace millrace::apps
