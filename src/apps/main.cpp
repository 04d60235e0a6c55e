// millrace: finds the verb, parses its flags, runs it, and turns what comes back into an exit code.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "apps/cli/cli.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"

namespace millrace::apps {
namespace {

int usage_failure(const Terminal& terminal, const Error& failure) {
  terminal.fail(failure.message);
  return kExitUsage;
}

int run_verb(const Verb& verb, const Arguments& arguments, const Terminal& terminal) {
  // The libraries return Results; what can still be thrown is bad_alloc, and a bug in a library below.
  try {
    Result<int> outcome = verb.run(arguments);
    if (outcome.ok()) return *outcome;
    if (outcome.error().code == Code::cancelled && Interruptible::interrupted()) return interrupted_exit_code();
    terminal.fail(outcome.error().message);
  } catch (const std::bad_alloc&) {
    terminal.fail("out of memory; close other programs or use a smaller model (`millrace doctor` shows what there is)");
  } catch (const std::exception& caught) {
    terminal.fail(fmt::format("internal error: {}; please report it", caught.what()));
  }
  return kExitFailure;
}

// Words that are no verbs but that people try: help, --help, --version.
std::vector<std::string> normalised(std::vector<std::string> words) {
  if (words.empty()) return {"--help"};
  if (words[0] == "--version" || words[0] == "-V") words[0] = "version";
  if (words[0] == "help" || words[0] == "-h") {
    words.erase(words.begin());
    words.push_back("--help");
  }
  return words;
}

int dispatch(std::vector<std::string> words) {
  words = normalised(std::move(words));
  Terminal terminal("auto", false);
  if (words[0] == "--help") {
    terminal.write_out(overview_help(terminal));
    return kExitOk;
  }
  FoundVerb found = find_verb(words);
  if (found.verb == nullptr) {
    if (is_family(words[0]) && (words.size() == 1 || asks_for_help(words))) {
      terminal.write_out(family_help(terminal, words[0]));
      return words.size() == 1 ? kExitUsage : kExitOk;
    }
    return usage_failure(terminal, unknown_verb(words));
  }
  // `bench tokenise`: bench is a verb of its own, but takes no operand, so a sub-verb was meant.
  bool more = words.size() > found.words && !words[found.words].starts_with('-');
  if (more && found.verb->operands.empty() && is_family(found.verb->name))
    return usage_failure(terminal, unknown_verb(words));
  words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(found.words));
  if (asks_for_help(words)) {
    terminal.write_out(verb_help(terminal, *found.verb));
    return kExitOk;
  }
  Result<Arguments> arguments =
      Arguments::parse(*found.verb, words, [](const char* name) -> const char* { return std::getenv(name); });
  if (!arguments.ok()) return usage_failure(terminal, arguments.error());
  Terminal chosen(arguments->text("color"), arguments->toggle("quiet"));
  arguments->attach(chosen);
  return run_verb(*found.verb, *arguments, chosen);
}

}  // namespace
}  // namespace millrace::apps

int main(int count, char** words) {
  using namespace millrace::apps;
  install_signal_handlers();
  int code = dispatch(std::vector<std::string>(words + (count > 0 ? 1 : 0), words + count));
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    Terminal("auto", false).fail(fmt::format("cannot write the output: {}", std::strerror(errno)));
    return code == kExitOk ? kExitFailure : code;
  }
  return code;
}
