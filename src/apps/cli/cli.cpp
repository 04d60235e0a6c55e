#include "apps/cli/cli.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace millrace::apps {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    size_t end = text.find(separator);
    if (end != 0) parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return parts;
}

bool spelled(const Flag& flag, std::string_view spelling) {
  if (spelling.starts_with("--") && spelling.substr(2) == flag.name) return true;
  auto aliases = split(flag.alias, ' ');
  return std::find(aliases.begin(), aliases.end(), spelling) != aliases.end();
}

const Flag* find_flag(const Verb& verb, std::string_view spelling) {
  for (const Flag& flag : verb.flags) {
    if (spelled(flag, spelling)) return &flag;
  }
  for (const Flag& flag : common_flags()) {
    if (spelled(flag, spelling)) return &flag;
  }
  return nullptr;
}

// Flags of llama.cpp and vLLM that are not here, and what does what they are for.
struct Foreign {
  std::string_view spellings, answer;
};
constexpr Foreign kForeign[] = {
    {" -ngl --gpu-layers --n-gpu-layers ",
     "a model runs whole on one device: --device cuda, or auto, puts it on the GPU"},
    {" -dev ", "--device says what computes"},
    {" -sm --split-mode -ts --tensor-split -mg --main-gpu ",
     "a model runs whole on the one device that --device names"},
    {" -nkvo --no-kv-offload ", "keys and values lie where the model is computed"},
    {" -cb --cont-batching -nocb --no-cont-batching ", "requests that are open are always computed together"},
    {" -fa --flash-attn ", "attention is always computed that way"},
    {" --mlock --no-mmap ", "weights are always copied into memory"},
};

// A spelling of one dash and so few letters is near to every other, so that only the same letters are a slip: -dev is
// not meant for -d, and -fh is for -hf.
bool is_slip(std::string_view typed, std::string_view known) {
  constexpr size_t kFewLetters = 4;
  if (typed.starts_with("--") || typed.size() > 1 + kFewLetters) return true;
  known.remove_prefix(std::min(known.find_first_not_of('-'), known.size()));
  typed.remove_prefix(1);
  return typed.size() == known.size() && std::is_permutation(typed.begin(), typed.end(), known.begin());
}

Error unknown_flag(const Verb& verb, std::string_view spelling) {
  for (const Foreign& foreign : kForeign) {
    if (foreign.spellings.find(fmt::format(" {} ", spelling)) != std::string_view::npos)
      return error(Code::invalid, "there is no {}; {}", spelling, foreign.answer);
  }
  std::vector<std::string> known;
  auto add = [&](const Flag& flag) {
    known.push_back(fmt::format("--{}", flag.name));
    if (flag.kind == Kind::toggle) known.push_back(fmt::format("--no-{}", flag.name));
    for (std::string_view alias : split(flag.alias, ' ')) known.emplace_back(alias);
  };
  for (const Flag& flag : verb.flags) add(flag);
  for (const Flag& flag : common_flags()) add(flag);
  std::erase_if(known, [&](const std::string& each) { return !is_slip(spelling, each); });
  if (auto guess = nearest(spelling, known)) {
    return error(Code::invalid, "unknown flag {}; did you mean {}?", spelling, *guess);
  }
  return error(Code::invalid, "unknown flag {}; `millrace {} --help` lists the flags", spelling, verb.name);
}

Error not_a(std::string_view spelling, std::string_view wanted, std::string_view text) {
  return error(Code::invalid, "{} needs {}, not '{}'", spelling, wanted, text);
}

Result<int64_t> parse_integer(std::string_view spelling, std::string_view text) {
  int64_t value = 0;
  auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return not_a(spelling, "a whole number", text);
  return value;
}

Result<double> parse_number(std::string_view spelling, std::string_view text) {
  double value = 0;
  auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || std::isnan(value)) {
    return not_a(spelling, "a number", text);
  }
  return value;
}

// "512", "64KiB", "8M", "1.5GiB": suffixes are powers of 1024 whatever their case or spelling.
Result<int64_t> parse_bytes(std::string_view spelling, std::string_view text) {
  constexpr std::string_view kUnits = "kmgt";
  std::string_view digits = text.substr(0, text.find_first_not_of("0123456789."));
  std::string suffix(text.substr(digits.size()));
  std::transform(suffix.begin(), suffix.end(), suffix.begin(), [](char c) { return c | 0x20; });
  double scale = 1;
  size_t unit = suffix.empty() ? 0 : kUnits.find(suffix[0]);
  if (!suffix.empty() && suffix != "b") {
    std::string_view rest = std::string_view(suffix).substr(1);
    if (unit == std::string_view::npos || (rest != "" && rest != "b" && rest != "ib")) {
      return not_a(spelling, "a size such as 512M or 1.5GiB", text);
    }
    scale = std::pow(1024.0, static_cast<double>(unit + 1));
  }
  auto number = parse_number(spelling, digits);
  if (!number.ok() || *number * scale > 9e18) return not_a(spelling, "a size such as 512M or 1.5GiB", text);
  return static_cast<int64_t>(*number * scale);
}

Result<bool> parse_bool(std::string_view spelling, std::string_view text) {
  for (std::string_view yes : {"1", "true", "yes", "on"}) {
    if (text == yes) return true;
  }
  for (std::string_view no : {"0", "false", "no", "off"}) {
    if (text == no) return false;
  }
  return not_a(spelling, "1 or 0 (true, false, yes, no, on, off)", text);
}

Result<void> check_choice(std::string_view spelling, std::string_view choices, std::string_view text) {
  if (choices.empty()) return {};
  std::vector<std::string> known;
  for (std::string_view choice : split(choices, '|')) {
    if (choice == text) return {};
    known.emplace_back(choice);
  }
  if (auto guess = nearest(text, known)) {
    return error(Code::invalid, "{} cannot be '{}'; did you mean {}?", spelling, text, *guess);
  }
  return error(Code::invalid, "{} cannot be '{}'; it is one of {}", spelling, text, fmt::join(known, ", "));
}

Result<void> check_range(const Flag& flag, std::string_view spelling, double value) {
  if (value >= flag.least && value <= flag.most) return {};
  if (flag.most == std::numeric_limits<double>::max()) {
    return error(Code::invalid, "{} must be at least {}, not {}", spelling, flag.least, value);
  }
  return error(Code::invalid, "{} must be between {} and {}, not {}", spelling, flag.least, flag.most, value);
}

// Optimal string alignment distance: a swap of two neighbours counts once, as typing errors go.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), previous(b.size() + 1), current(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t cost = a[i - 1] == b[j - 1] ? 0 : 1;
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, previous[j - 1] + cost});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        current[j] = std::min(current[j], before[j - 2] + 1);
      }
    }
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

}  // namespace

std::span<const Flag> common_flags() {
  static const Flag flags[] = {
      {.name = "color",
       .kind = Kind::text,
       .value = "WHEN",
       .otherwise = "auto",
       .choices = "auto|always|never",
       .help = "colours; auto means on a terminal, unless NO_COLOR is set"},
      {.name = "models-dir",
       .kind = Kind::path,
       .value = "DIR",
       .help = "where models by name lie (default: ~/.local/share/millrace/models)"},
      {.name = "quiet", .alias = "-q", .help = "no progress and no remarks on stderr, only errors"},
      {.name = "help", .alias = "-h", .help = "show this"},
  };
  return flags;
}

std::string environment_name(std::string_view flag) {
  std::string name = "MILLRACE_";
  for (char c : flag) name += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return name;
}

Result<void> Arguments::store(const Flag& flag, std::string_view text, std::string_view spelling) {
  Parsed& parsed = flags_[flag.name];
  if (flag.many == Many::commas) {
    auto parts = split(text, ',');
    if (parts.empty()) return not_a(spelling, fmt::format("{} or several with commas between", flag.value), text);
    if (parts.size() > 1 || parts[0] != text) {
      for (std::string_view part : parts) TRY_VOID(store(flag, part, spelling));
      return {};
    }
  }
  TRY_VOID(check_choice(spelling, flag.choices, text));
  if (flag.many == Many::once) parsed = {.flag = &flag};
  parsed.given = true;
  switch (flag.kind) {
    case Kind::toggle: {
      TRY(parsed.toggle, parse_bool(spelling, text));
      break;
    }
    case Kind::text:
    case Kind::path:
      parsed.texts.emplace_back(text);
      break;
    case Kind::integer:
    case Kind::bytes: {
      TRY(int64_t value, flag.kind == Kind::bytes ? parse_bytes(spelling, text) : parse_integer(spelling, text));
      TRY_VOID(check_range(flag, spelling, static_cast<double>(value)));
      parsed.integers.push_back(value);
      break;
    }
    case Kind::number: {
      TRY(double value, parse_number(spelling, text));
      TRY_VOID(check_range(flag, spelling, value));
      parsed.numbers.push_back(value);
      break;
    }
  }
  return {};
}

Result<void> Arguments::take_flag(std::span<const std::string> words, size_t& index) {
  std::string_view word = words[index];
  size_t equals = word.find('=');
  std::string_view spelling = word.substr(0, equals);
  std::optional<std::string_view> value;
  if (equals != std::string_view::npos) value = word.substr(equals + 1);

  const Flag* flag = find_flag(*verb_, spelling);
  bool negated = false;
  if (flag == nullptr && spelling.starts_with("--no-")) {
    flag = find_flag(*verb_, fmt::format("--{}", spelling.substr(5)));
    negated = flag != nullptr && flag->kind == Kind::toggle;
    if (!negated) flag = nullptr;
  }
  if (flag == nullptr) return unknown_flag(*verb_, spelling);
  if (flag->kind == Kind::toggle) {
    if (negated && value) return error(Code::invalid, "{} takes no value", spelling);
    return store(*flag, negated ? "0" : value.value_or("1"), spelling);
  }
  if (!value) {
    if (index + 1 >= words.size()) return error(Code::invalid, "{} needs a value: {}", spelling, flag->value);
    value = words[++index];
  }
  return store(*flag, *value, spelling);
}

Result<void> Arguments::take_operands(std::span<const std::string> words) {
  size_t next = 0;
  for (const Operand& operand : verb_->operands) {
    if (next >= words.size()) {
      if (!operand.required) continue;
      return error(Code::invalid, "`millrace {}` needs {}: {}", verb_->name, operand.name, operand.help);
    }
    size_t count = operand.many ? words.size() - next : 1;
    for (size_t i = 0; i < count; ++i, ++next) {
      TRY_VOID(check_choice(operand.name, operand.choices, words[next]));
      operands_[operand.name].push_back(words[next]);
    }
  }
  if (next == words.size()) return {};
  return error(Code::invalid, "`millrace {}` does not know what to do with '{}'; `millrace {} --help` shows its use",
               verb_->name, words[next], verb_->name);
}

Result<void> Arguments::take_environment(Environment environment) {
  auto take = [&](const Flag& flag) -> Result<void> {
    std::string name = environment_name(flag.name);
    const char* value = environment(name.c_str());
    if (value == nullptr || *value == '\0' || flag.name == "help") return {};
    if (flags_.contains(flag.name) && flags_[flag.name].given) return {};
    return store(flag, value, name);
  };
  for (const Flag& flag : verb_->flags) TRY_VOID(take(flag));
  for (const Flag& flag : common_flags()) TRY_VOID(take(flag));
  return {};
}

Result<void> Arguments::take_defaults() {
  auto take = [&](const Flag& flag) -> Result<void> {
    Parsed& parsed = flags_[flag.name];
    parsed.flag = &flag;
    if (parsed.given) return {};
    if (flag.required) {
      return error(Code::invalid, "`millrace {}` needs --{} {}: {}", verb_->name, flag.name, flag.value, flag.help);
    }
    if (flag.otherwise.empty()) return {};
    TRY_VOID(store(flag, flag.otherwise, flag.name));
    parsed.given = false;
    return {};
  };
  for (const Flag& flag : verb_->flags) TRY_VOID(take(flag));
  for (const Flag& flag : common_flags()) TRY_VOID(take(flag));
  return {};
}

Result<Arguments> Arguments::parse(const Verb& verb, std::span<const std::string> words, Environment environment) {
  Arguments arguments;
  arguments.verb_ = &verb;
  arguments.words_.assign(words.begin(), words.end());
  arguments.environment_ = environment;
  std::vector<std::string> operands;
  bool flags_end = false;
  for (size_t i = 0; i < words.size(); ++i) {
    if (!flags_end && words[i] == "--") {
      flags_end = true;
      arguments.operand_words_.push_back(i);
    } else if (!flags_end && words[i].size() > 1 && words[i][0] == '-') {
      TRY_VOID(arguments.take_flag(words, i));
    } else {
      operands.push_back(words[i]);
      arguments.operand_words_.push_back(i);
    }
  }
  TRY_VOID(arguments.take_operands(operands));
  TRY_VOID(arguments.take_environment(environment));
  TRY_VOID(arguments.take_defaults());
  return arguments;
}

Result<Arguments> Arguments::with(const std::vector<std::string>& more) const {
  std::vector<std::string> words = words_;
  for (size_t i = operand_words_.size(); i-- > 0;)
    words.erase(words.begin() + static_cast<ptrdiff_t>(operand_words_[i]));
  words.insert(words.end(), more.begin(), more.end());
  TRY(Arguments changed, parse(*verb_, words, environment_));
  changed.terminal_ = terminal_;
  return changed;
}

const Arguments::Parsed& Arguments::parsed(std::string_view flag) const {
  auto found = flags_.find(flag);
  CHECK(found != flags_.end(), "verb '{}' has no flag '{}'", verb_->name, flag);
  return found->second;
}

const Terminal& Arguments::terminal() const {
  CHECK(terminal_ != nullptr, "no terminal attached");
  return *terminal_;
}

bool Arguments::knows(std::string_view flag) const { return flags_.contains(flag); }

bool Arguments::given(std::string_view flag) const { return parsed(flag).given; }

bool Arguments::toggle(std::string_view flag) const {
  CHECK(parsed(flag).flag->kind == Kind::toggle, "--{} is no toggle", flag);
  return parsed(flag).toggle;
}

std::optional<std::string> Arguments::maybe_text(std::string_view flag) const {
  Kind kind = parsed(flag).flag->kind;
  CHECK(kind == Kind::text || kind == Kind::path, "--{} is no text", flag);
  const auto& values = parsed(flag).texts;
  return values.empty() ? std::nullopt : std::optional<std::string>(values.back());
}

std::string Arguments::text(std::string_view flag) const { return maybe_text(flag).value_or(""); }

int64_t Arguments::integer(std::string_view flag) const {
  Kind kind = parsed(flag).flag->kind;
  CHECK(kind == Kind::integer || kind == Kind::bytes, "--{} is no whole number", flag);
  const auto& values = parsed(flag).integers;
  return values.empty() ? 0 : values.back();
}

double Arguments::number(std::string_view flag) const {
  CHECK(parsed(flag).flag->kind == Kind::number, "--{} is no number", flag);
  const auto& values = parsed(flag).numbers;
  return values.empty() ? 0 : values.back();
}

std::vector<std::string> Arguments::texts(std::string_view flag) const { return parsed(flag).texts; }
std::vector<double> Arguments::numbers(std::string_view flag) const { return parsed(flag).numbers; }
std::vector<int64_t> Arguments::integers(std::string_view flag) const { return parsed(flag).integers; }

std::vector<std::string> Arguments::operands(std::string_view name) const {
  auto found = operands_.find(name);
  return found == operands_.end() ? std::vector<std::string>() : found->second;
}

std::string Arguments::operand(std::string_view name) const {
  auto all = operands(name);
  return all.empty() ? std::string() : all.front();
}

bool asks_for_help(std::span<const std::string> words) {
  for (const std::string& word : words) {
    if (word == "--") return false;
    if (word == "--help" || word == "-h") return true;
  }
  return false;
}

std::optional<std::string> nearest(std::string_view typed, std::span<const std::string> known) {
  std::optional<std::string> best;
  size_t least = typed.size() / 3 + 2;  // farther than this is another word, not a slip
  for (const std::string& word : known) {
    size_t far = distance(typed, word);
    // A short word with everything changed is no slip either.
    if (far < least && far < std::max(typed.size(), word.size())) {
      least = far;
      best = word;
    }
  }
  if (best) return best;
  for (const std::string& word : known) {
    if (typed.size() >= 3 && word.starts_with(typed)) return word;
  }
  return std::nullopt;
}

}  // namespace millrace::apps
