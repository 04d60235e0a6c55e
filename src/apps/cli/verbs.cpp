#include "apps/cli/verbs.h"

#include <algorithm>

#include "apps/build_info.h"
#include "apps/cli/terminal.h"

namespace millrace::apps {
namespace {

// The order of headings in the overview; a group not named here comes last.
constexpr std::string_view kGroups[] = {"Use a model",     "Look at models",    "Make models smaller",
                                        "Text and tokens", "Measure and check", "This program"};

size_t rank(std::string_view group) {
  return static_cast<size_t>(std::find(std::begin(kGroups), std::end(kGroups), group) - std::begin(kGroups));
}

std::string padded(std::string_view text, size_t to) {
  std::string out(text);
  if (width(out) < to) out.append(to - width(out), ' ');
  return out;
}

std::string examples_help(const Terminal& terminal, std::span<const Example> examples) {
  std::string out = terminal.out_paint(Style::bold, "Examples") + "\n";
  for (const Example& example : examples) {
    out += fmt::format("  {}\n", terminal.out_paint(Style::dim, fmt::format("# {}", example.what)));
    out += fmt::format("  millrace {}\n", example.command);
  }
  return out + "\n";
}

std::string verb_list(const Terminal& terminal, std::span<const Verb* const> list) {
  size_t column = 0;
  for (const Verb* verb : list) column = std::max(column, width(verb->name));
  std::string out, group;
  for (const Verb* verb : list) {
    if (verb->group != group) {
      group = verb->group;
      out += terminal.out_paint(Style::bold, group) + "\n";
    }
    out += fmt::format("  {}  {}\n", terminal.out_paint(Style::cyan, padded(verb->name, column)), verb->summary);
  }
  return out;
}

// Words flow into lines of at most 100 characters, each after the first indented.
std::string wrapped(std::string_view text, size_t indent) {
  constexpr size_t kLine = 100;
  std::string out;
  size_t at = indent;
  while (!text.empty()) {
    size_t end = text.find(' ');
    std::string_view word = text.substr(0, end);
    if (at > indent && at + 1 + width(word) > kLine) {
      out += "\n" + std::string(indent, ' ');
      at = indent;
    } else if (at > indent) {
      out += ' ';
      ++at;
    }
    out += word;
    at += width(word);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return out;
}

std::string spellings(const Flag& flag) {
  std::string aliases;
  for (char c : flag.alias) aliases += c == ' ' ? std::string(", ") : std::string(1, c);
  std::string text = aliases.empty() ? fmt::format("    --{}", flag.name) : fmt::format("{}, --{}", aliases, flag.name);
  if (!flag.value.empty()) text += fmt::format(" {}", flag.value);
  return text;
}

std::string flag_text(const Flag& flag) {
  std::string text(flag.help);
  if (!flag.choices.empty()) text += fmt::format(" [{}]", flag.choices);
  if (flag.many == Many::repeated) text += "; may be given several times";
  if (flag.many == Many::commas) text += "; several with commas between";
  if (flag.required) text += "; required";
  if (!flag.otherwise.empty()) text += fmt::format(" (default {})", flag.otherwise);
  return text;
}

std::string flags_help(const Terminal& terminal, std::span<const Flag> flags, std::span<const Operand> operands) {
  constexpr size_t kWidest = 30;
  size_t column = 0;
  for (const Operand& operand : operands) column = std::max(column, width(operand.name));
  for (const Flag& flag : flags) column = std::max(column, std::min(kWidest, width(spellings(flag))));
  std::string out;
  auto line = [&](std::string left, std::string_view right) {
    bool long_name = width(left) > column;
    out += fmt::format("  {}", terminal.out_paint(Style::cyan, padded(left, column)));
    out += long_name ? "\n" + std::string(column + 4, ' ') : "  ";
    out += wrapped(right, column + 4) + "\n";
  };
  for (const Operand& operand : operands) {
    std::string text(operand.help);
    if (!operand.choices.empty()) text += fmt::format(" [{}]", operand.choices);
    line(std::string(operand.name), text);
  }
  for (const Flag& flag : flags) line(spellings(flag), flag_text(flag));
  return out;
}

}  // namespace

std::span<const Verb> verbs() {
  static const std::vector<Verb> all = {
#define VERB(name) name##_verb(),
#include "apps/cli/verbs.inc"
#undef VERB
  };
  return all;
}

FoundVerb find_verb(std::span<const std::string> words) {
  FoundVerb found;
  for (const Verb& verb : verbs()) {
    size_t space = verb.name.find(' ');
    size_t count = space == std::string_view::npos ? 1 : 2;
    if (words.size() < count || count <= found.words) continue;
    if (words[0] != verb.name.substr(0, space)) continue;
    if (count == 2 && words[1] != verb.name.substr(space + 1)) continue;
    found = {.verb = &verb, .words = count};
  }
  return found;
}

bool is_family(std::string_view word) {
  for (const Verb& verb : verbs()) {
    if (verb.name.size() > word.size() && verb.name.starts_with(word) && verb.name[word.size()] == ' ') return true;
  }
  return false;
}

Error unknown_verb(std::span<const std::string> words) {
  bool family = is_family(words[0]);
  std::vector<std::string> known;
  for (const Verb& verb : verbs()) {
    size_t space = verb.name.find(' ');
    if (family && verb.name.substr(0, space) == words[0]) known.emplace_back(verb.name.substr(space + 1));
    if (!family) known.emplace_back(verb.name.substr(0, space));
  }
  std::string_view typed = family && words.size() > 1 ? words[1] : words[0];
  std::string before = family ? words[0] + " " : "";
  if (auto guess = nearest(typed, known)) {
    return error(Code::invalid, "unknown verb '{}{}'; did you mean `millrace {}{}`?", before, typed, before, *guess);
  }
  return error(Code::invalid, "unknown verb '{}{}'; `millrace {}--help` lists the verbs", before, typed, before);
}

int wrong_use(const Arguments& arguments, std::string_view message) {
  arguments.terminal().fail(message);
  return kExitUsage;
}

std::string overview_help(const Terminal& terminal) {
  std::vector<const Verb*> list;
  for (const Verb& verb : verbs()) list.push_back(&verb);
  std::stable_sort(list.begin(), list.end(), [](auto* a, auto* b) { return rank(a->group) < rank(b->group); });
  std::vector<Example> examples;
  for (const Verb* verb : list) {
    if (!verb->examples.empty() && examples.size() < 8) examples.push_back(verb->examples.front());
  }
  std::string out = fmt::format("Millrace {}: an engine for language models that shows its speed beside its limit.\n\n",
                                kBuildInfo.version);
  out += examples_help(terminal, examples);
  out += fmt::format("{}\n  millrace VERB [OPERANDS] [FLAGS]\n\n", terminal.out_paint(Style::bold, "Usage"));
  out += verb_list(terminal, list);
  out +=
      "\n`millrace VERB --help` explains a verb. Every flag --NAME can be set as MILLRACE_NAME in the environment.\n";
  return out;
}

std::string family_help(const Terminal& terminal, std::string_view family) {
  std::vector<const Verb*> list;
  std::vector<Example> examples;
  for (const Verb& verb : verbs()) {
    if (verb.name.substr(0, verb.name.find(' ')) != family) continue;
    list.push_back(&verb);
    if (!verb.examples.empty()) examples.push_back(verb.examples.front());
  }
  return examples_help(terminal, examples) + verb_list(terminal, list);
}

std::string verb_help(const Terminal& terminal, const Verb& verb) {
  std::string out = fmt::format("millrace {}: {}\n\n", verb.name, verb.summary);
  if (!verb.examples.empty()) out += examples_help(terminal, verb.examples);
  std::string usage = fmt::format("millrace {}", verb.name);
  for (const Operand& operand : verb.operands) {
    std::string name = std::string(operand.name) + (operand.many ? " ..." : "");
    usage += operand.required ? " " + name : " [" + name + "]";
  }
  out += fmt::format("{}\n  {} [FLAGS]\n\n", terminal.out_paint(Style::bold, "Usage"), usage);
  out += terminal.out_paint(Style::bold, "Operands and flags") + "\n";
  out += flags_help(terminal, verb.flags, verb.operands);
  out += "\n" + terminal.out_paint(Style::bold, "Flags of every verb") + "\n";
  out += flags_help(terminal, common_flags(), {});
  for (std::string_view rest = verb.notes; !rest.empty();) {
    size_t end = std::min(rest.find('\n'), rest.size());
    out += fmt::format("\n{}\n", wrapped(rest.substr(0, end), 0));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (is_family(verb.name)) {
    std::vector<const Verb*> list;
    for (const Verb& other : verbs()) {
      if (other.name.starts_with(fmt::format("{} ", verb.name))) list.push_back(&other);
    }
    out += "\n" + verb_list(terminal, list);
  }
  return out;
}

}  // namespace millrace::apps
