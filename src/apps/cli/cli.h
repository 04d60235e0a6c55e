// The command line as data: a verb lists its flags and operands in a table, and everything else (parsing, checking,
// help, suggestions, completion, environment twins) is made from that table. Parsed once at the start of main by one
// thread; an Arguments is immutable afterwards. What a person types wrong comes back as an Error; asking for a flag
// that is not in the verb's table is our own mistake and a CHECK.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace::apps {

class Terminal;
class Arguments;

inline constexpr int kExitOk = 0, kExitFailure = 1, kExitUsage = 2, kExitInterrupted = 130;

// What a flag is followed by. A toggle is followed by nothing and has a twin --no-NAME.
enum class Kind : uint8_t { toggle, text, path, integer, number, bytes };

// Whether giving a flag again replaces the value or adds to it.
enum class Many : uint8_t { once, repeated, commas };

struct Flag {
  std::string_view name;        // without dashes; its environment twin is MILLRACE_NAME
  std::string_view alias = "";  // other spellings, with dashes, separated by spaces: "-c --max-model-len"
  Kind kind = Kind::toggle;
  std::string_view value = "";      // what help calls the value: "PATH"
  std::string_view otherwise = "";  // the default, as it would be typed
  std::string_view choices = "";    // "auto|always|never": nothing else is accepted
  Many many = Many::once;
  double least = std::numeric_limits<double>::lowest(), most = std::numeric_limits<double>::max();
  bool required = false;
  std::string_view help = "";
};

struct Operand {
  std::string_view name;  // "PATH"
  std::string_view choices = "";
  bool required = true;
  bool many = false;  // takes all that are left; only the last operand may
  std::string_view help = "";
};

struct Example {
  std::string_view command;  // without the leading "millrace"
  std::string_view what;
};

struct Verb {
  std::string_view name;     // one word, or two: "bench tokenize"
  std::string_view summary;  // one line, no full stop
  std::string_view group;    // the heading it stands under in `millrace --help`
  std::vector<Operand> operands = {};
  std::vector<Flag> flags = {};
  std::vector<Example> examples = {};
  std::string_view notes = "";  // below the flags in --help; a line break begins a new paragraph
  // Returns the exit code; an Error is printed as one line and ends with kExitFailure.
  Result<int> (*run)(const Arguments&) = nullptr;
};

// Flags every verb has: --help, --color, --quiet.
std::span<const Flag> common_flags();

// The environment twin of a flag: "ctx-size" -> "MILLRACE_CTX_SIZE".
std::string environment_name(std::string_view flag);

using Environment = const char* (*)(const char* name);

class Arguments {
 public:
  // Precedence: command line, then environment, then the table's default.
  static Result<Arguments> parse(const Verb& verb, std::span<const std::string> words, Environment environment);

  const Verb& verb() const { return *verb_; }
  const std::vector<std::string>& words() const { return words_; }  // as typed, after the verb
  // The same verb with further words; operands are left out, as `--model` takes the place of a model's name.
  Result<Arguments> with(const std::vector<std::string>& more) const;
  const Terminal& terminal() const;
  void attach(const Terminal& terminal) { terminal_ = &terminal; }

  bool knows(std::string_view flag) const;        // the verb has it
  bool given(std::string_view flag) const;        // on the command line or in the environment
  bool toggle(std::string_view flag) const;       // Kind::toggle
  std::string text(std::string_view flag) const;  // Kind::text and Kind::path; empty if absent
  std::optional<std::string> maybe_text(std::string_view flag) const;
  int64_t integer(std::string_view flag) const;  // Kind::integer and Kind::bytes; 0 if absent and without default
  double number(std::string_view flag) const;    // Kind::number; 0 if absent and without default
  std::vector<std::string> texts(std::string_view flag) const;
  std::vector<int64_t> integers(std::string_view flag) const;
  std::vector<double> numbers(std::string_view flag) const;

  // Empty if absent (possible only where the table says it is not required).
  std::string operand(std::string_view name) const;
  std::vector<std::string> operands(std::string_view name) const;

 private:
  struct Parsed {
    const Flag* flag = nullptr;
    bool given = false;
    bool toggle = false;
    std::vector<std::string> texts = {};
    std::vector<int64_t> integers = {};
    std::vector<double> numbers = {};
  };
  Result<void> store(const Flag& flag, std::string_view text, std::string_view spelling);
  Result<void> take_flag(std::span<const std::string> words, size_t& index);
  Result<void> take_operands(std::span<const std::string> words);
  Result<void> take_environment(Environment environment);
  Result<void> take_defaults();
  const Parsed& parsed(std::string_view flag) const;

  const Verb* verb_ = nullptr;
  std::vector<std::string> words_;
  std::vector<size_t> operand_words_;  // which of them are operands, or the end of flags
  Environment environment_ = nullptr;
  const Terminal* terminal_ = nullptr;
  std::map<std::string_view, Parsed> flags_;
  std::map<std::string_view, std::vector<std::string>> operands_;
};

// True if --help or -h stands among the words (before a "--").
bool asks_for_help(std::span<const std::string> words);

// The spelling of a word in `known` nearest to what was typed, if any is near enough to be meant.
std::optional<std::string> nearest(std::string_view typed, std::span<const std::string> known);

}  // namespace millrace::apps
