// Shell completion, written out from the verbs' tables, so it cannot fall behind them.
#include <algorithm>

#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"

namespace millrace::apps {
namespace {

std::string replaced(std::string_view text, char from, std::string_view to) {
  std::string out;
  for (char c : text) out += c == from ? std::string(to) : std::string(1, c);
  return out;
}

std::vector<std::string> words_of(const Flag& flag) {
  std::vector<std::string> words = {fmt::format("--{}", flag.name)};
  for (std::string_view rest = flag.alias; !rest.empty();) {
    size_t end = std::min(rest.find(' '), rest.size());
    words.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return words;
}

std::vector<Flag> flags_of(const Verb& verb) {
  std::vector<Flag> flags = verb.flags;
  for (const Flag& flag : common_flags()) flags.push_back(flag);
  return flags;
}

std::vector<std::string> first_words() {
  std::vector<std::string> words = {"help"};
  for (const Verb& verb : verbs()) {
    std::string word(verb.name.substr(0, verb.name.find(' ')));
    if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  }
  return words;
}

std::vector<std::string> second_words(std::string_view family) {
  std::vector<std::string> words;
  for (const Verb& verb : verbs()) {
    size_t space = verb.name.find(' ');
    if (space != std::string_view::npos && verb.name.substr(0, space) == family) {
      words.emplace_back(verb.name.substr(space + 1));
    }
  }
  return words;
}

// The function bash calls: finds the verb among the words typed, then offers its flags, choices or files.
std::string bash_script() {
  std::string out =
      "# Completion of millrace for bash: source it, or put it into /etc/bash_completion.d/millrace\n_millrace() {\n";
  out += "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} offer=\n";
  out += "  COMPREPLY=()\n";
  out += fmt::format("  if ((COMP_CWORD == 1)); then COMPREPLY=($(compgen -W '{}' -- \"$word\")); return; fi\n",
                     fmt::join(first_words(), " "));
  out += "  case $verb in\n";
  for (const std::string& family : first_words()) {
    auto words = second_words(family);
    if (words.empty()) continue;
    out += fmt::format(
        "    {}) if ((COMP_CWORD == 2)); then COMPREPLY=($(compgen -W '{}' -- \"$word\")); return; fi; "
        "verb=\"$verb ${{COMP_WORDS[2]}}\";;\n",
        family, fmt::join(words, " "));
  }
  out += "  esac\n  case \"$verb $before\" in\n";
  for (const Verb& verb : verbs()) {
    for (const Flag& flag : flags_of(verb)) {
      if (flag.kind == Kind::toggle) continue;
      for (const std::string& spelling : words_of(flag)) {
        std::string offer = flag.choices.empty() ? (flag.kind == Kind::path ? "compgen -f" : "true")
                                                 : fmt::format("compgen -W '{}'", replaced(flag.choices, '|', " "));
        out += fmt::format("    '{} {}') mapfile -t COMPREPLY < <({} -- \"$word\"); return;;\n", verb.name, spelling,
                           offer);
      }
    }
  }
  out += "  esac\n  case $verb in\n";
  for (const Verb& verb : verbs()) {
    std::vector<std::string> words;
    for (const Flag& flag : flags_of(verb)) {
      for (const std::string& spelling : words_of(flag)) words.push_back(spelling);
    }
    for (const Operand& operand : verb.operands) {
      if (!operand.choices.empty()) words.push_back(replaced(operand.choices, '|', " "));
    }
    out += fmt::format("    '{}') offer='{}';;\n", verb.name, fmt::join(words, " "));
  }
  out += "  esac\n  COMPREPLY=($(compgen -W \"$offer\" -- \"$word\"))\n";
  out += "  [[ $word == -* ]] || mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- \"$word\")\n}\n";
  out += "complete -o filenames -F _millrace millrace ./millrace\n";
  return out;
}

std::string zsh_quoted(std::string_view text) {
  std::string out = replaced(replaced(text, '\'', "'\\''"), ':', "\\:");
  return replaced(replaced(out, '[', "\\["), ']', "\\]");
}

std::string zsh_arguments(const Verb& verb) {
  std::string out = "_arguments";
  for (const Flag& flag : flags_of(verb)) {
    std::string after;
    if (flag.kind != Kind::toggle) {
      after = fmt::format(":{}:", flag.value);
      if (!flag.choices.empty()) after += fmt::format("({})", replaced(flag.choices, '|', " "));
      if (flag.kind == Kind::path) after += "_files";
    }
    for (const std::string& spelling : words_of(flag)) {
      out += fmt::format(" \\\n        '*{}[{}]{}'", spelling, zsh_quoted(flag.help), after);
    }
  }
  for (const Operand& operand : verb.operands) {
    std::string offer = operand.choices.empty() ? "_files" : fmt::format("({})", replaced(operand.choices, '|', " "));
    out += fmt::format(" \\\n        '{}:{}:{}'", operand.many ? "*" : "", operand.name, offer);
  }
  return out;
}

std::string zsh_script() {
  std::string out =
      "#compdef millrace\n# Completion of millrace for zsh: save as _millrace in a folder of $fpath\n_millrace() {\n";
  out += "  local -a verbs\n  verbs=(\n";
  for (const std::string& word : first_words()) {
    FoundVerb found = find_verb(std::vector<std::string>{word});
    out += fmt::format("    '{}:{}'\n", word, found.verb == nullptr ? "" : zsh_quoted(found.verb->summary));
  }
  out += "  )\n  if ((CURRENT == 2)); then _describe verb verbs; return; fi\n";
  out += "  local verb=$words[2]\n  case $verb in\n";
  for (const std::string& family : first_words()) {
    auto words = second_words(family);
    if (words.empty()) continue;
    out += fmt::format(
        "    {}) if ((CURRENT == 3)); then compadd {}; return; fi\n      verb=\"$verb $words[3]\"; shift words; "
        "((CURRENT--));;\n",
        family, fmt::join(words, " "));
  }
  out += "  esac\n  shift words; ((CURRENT--))\n  case $verb in\n";
  for (const Verb& verb : verbs()) out += fmt::format("    '{}')\n      {};;\n", verb.name, zsh_arguments(verb));
  out += "  esac\n}\n_millrace \"$@\"\n";
  return out;
}

std::string fish_quoted(std::string_view text) {
  return "'" + replaced(replaced(text, '\\', "\\\\"), '\'', "\\'") + "'";
}

// fish asks per flag under which words before it the flag is offered.
std::string fish_flag(const std::string& condition, const Flag& flag) {
  std::string line = fmt::format("complete -c millrace -n '{}'", condition);
  for (const std::string& spelling : words_of(flag)) {
    bool is_long = spelling.starts_with("--");
    line +=
        fmt::format(" {} {}", is_long ? "-l" : (spelling.size() == 2 ? "-s" : "-o"), spelling.substr(is_long ? 2 : 1));
  }
  if (flag.kind != Kind::toggle) line += flag.kind == Kind::path ? " -r -F" : " -x";
  if (!flag.choices.empty()) line += fmt::format(" -a '{}'", replaced(flag.choices, '|', " "));
  return line + fmt::format(" -d {}\n", fish_quoted(flag.help));
}

std::string fish_script() {
  std::string out =
      "# Completion of millrace for fish: save as ~/.config/fish/completions/millrace.fish\ncomplete -c millrace -f\n";
  for (const std::string& word : first_words()) {
    FoundVerb found = find_verb(std::vector<std::string>{word});
    out += fmt::format("complete -c millrace -n __fish_use_subcommand -a {} -d {}\n", word,
                       fish_quoted(found.verb == nullptr ? "" : found.verb->summary));
  }
  for (const Verb& verb : verbs()) {
    size_t space = verb.name.find(' ');
    std::string first(verb.name.substr(0, space));
    std::string condition = "__fish_seen_subcommand_from " + first;
    if (space != std::string_view::npos) {
      std::string second(verb.name.substr(space + 1));
      out += fmt::format("complete -c millrace -n '{}; and not __fish_seen_subcommand_from {}' -a {} -d {}\n",
                         condition, fmt::join(second_words(first), " "), second, fish_quoted(verb.summary));
      condition += "; and __fish_seen_subcommand_from " + second;
    }
    for (const Flag& flag : flags_of(verb)) out += fish_flag(condition, flag);
    for (const Operand& operand : verb.operands) {
      out += operand.choices.empty() ? fmt::format("complete -c millrace -n '{}' -F\n", condition)
                                     : fmt::format("complete -c millrace -n '{}' -a '{}'\n", condition,
                                                   replaced(operand.choices, '|', " "));
    }
  }
  return out;
}

Result<int> run_completion(const Arguments& arguments) {
  std::string shell = arguments.operand("SHELL");
  arguments.terminal().write_out(shell == "bash" ? bash_script() : (shell == "zsh" ? zsh_script() : fish_script()));
  return kExitOk;
}

}  // namespace

Verb completion_verb() {
  return {.name = "completion",
          .summary = "print a completion script for your shell",
          .group = "This program",
          .operands = {{.name = "SHELL", .choices = "bash|zsh|fish", .help = "the shell"}},
          .examples = {{"completion bash | sudo tee /etc/bash_completion.d/millrace", "for everyone who uses bash"},
                       {"completion zsh > ~/.zfunc/_millrace", "for zsh, with ~/.zfunc in $fpath"},
                       {"completion fish > ~/.config/fish/completions/millrace.fish", "for fish"}},
          .run = run_completion};
}

}  // namespace millrace::apps
