// How fast text becomes tokens on one processor, and whether hostile text is slower: time per byte must not grow with
// the length of a run of one character.
#include <time.h>

#include <algorithm>
#include <string>
#include <vector>

#include "apps/cli/input.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/text/open_tokenizer.h"
#include "apps/text/prose.h"
#include "base/json.h"
#include "text/tokenizer.h"

namespace millrace::apps {
namespace {

struct Case {
  std::string name;
  std::string text;
};

struct Measured {
  std::string name;
  size_t bytes = 0, tokens = 0;
  double seconds = 0;  // of the median repetition

  double megabytes_per_second() const { return static_cast<double>(bytes) / seconds / 1e6; }
  double nanoseconds_per_byte() const { return seconds * 1e9 / static_cast<double>(bytes); }
};

std::string repeated(std::string_view unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

// Letters in no order: nothing that a cache of words could know.
std::string random_letters(size_t bytes, size_t word) {
  std::string text;
  uint64_t state = 1;
  while (text.size() < bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    bool gap = word != 0 && (text.size() + 1) % (word + 1) == 0;
    text += gap ? ' ' : static_cast<char>('a' + (state >> 33) % 26);
  }
  return text;
}

std::vector<Case> hostile_cases(size_t bytes) {
  return {{"one letter", repeated("a", bytes)},
          {"spaces", repeated(" ", bytes)},
          {"line breaks", repeated("\n", bytes)},
          {"digits", repeated("7", bytes)},
          {"one sign", repeated("=", bytes)},
          {"random letters, no spaces", random_letters(bytes, 0)},
          {"random words of 8 letters", random_letters(bytes, 8)},
          {"emoji", repeated("😀", bytes)},
          {"Chinese", repeated("汉字处理速度测试", bytes)},
          {"bytes that are no UTF-8", repeated("\xff\xfe\x80", bytes)}};
}

// Time this thread has had a processor for: what others on the machine do does not count.
double thread_seconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

Result<Measured> measure(const Tokenizer& tokenizer, const Case& item, int64_t repeat) {
  Measured result = {.name = item.name, .bytes = item.text.size()};
  std::vector<double> times;
  for (int64_t i = 0; i < repeat; ++i) {
    double start = thread_seconds();
    TRY(const std::vector<Token> tokens, tokenizer.encode(item.text));
    times.push_back(thread_seconds() - start);
    result.tokens = tokens.size();
  }
  std::sort(times.begin(), times.end());
  result.seconds = std::max(times[times.size() / 2], 1e-9);
  return result;
}

void print_rows(const Terminal& terminal, const std::vector<Measured>& rows) {
  using Align = Table::Align;
  Table table({{"text"},
               {"size", Align::right},
               {"tokens", Align::right},
               {"MB/s", Align::right},
               {"M tokens/s", Align::right},
               {"ns/byte", Align::right},
               {"x prose", Align::right}});
  for (const Measured& row : rows) {
    table.row({row.name, human_bytes(row.bytes), fmt::format("{}", row.tokens),
               fmt::format("{:.1f}", row.megabytes_per_second()),
               fmt::format("{:.2f}", static_cast<double>(row.tokens) / row.seconds / 1e6),
               fmt::format("{:.1f}", row.nanoseconds_per_byte()),
               fmt::format("{:.2f}", row.nanoseconds_per_byte() / rows[0].nanoseconds_per_byte())});
  }
  table.print(terminal);
}

void print_json(const Terminal& terminal, const std::vector<Measured>& rows) {
  JsonArray out;
  for (const Measured& row : rows) {
    out.push_back(JsonObject{{"text", row.name},
                             {"bytes", row.bytes},
                             {"tokens", row.tokens},
                             {"seconds", row.seconds},
                             {"megabytes_per_second", row.megabytes_per_second()},
                             {"times_prose", row.nanoseconds_per_byte() / rows[0].nanoseconds_per_byte()}});
  }
  terminal.print("{}\n", to_pretty_text(out));
}

Result<int> run_bench_tokenize(const Arguments& arguments) {
  TRY(std::filesystem::path path, model_path(arguments));
  TRY(Tokenizer tokenizer, open_tokenizer(path));
  auto size = static_cast<size_t>(arguments.integer("size"));
  Case prose = {"generated prose", generated_prose(tokenizer, size)};
  if (arguments.given("file")) {
    TRY(std::string text, read_input(arguments.text("file")));
    if (text.empty()) return error(Code::invalid, "{} is empty: give a file with text", arguments.text("file"));
    prose = {std::filesystem::path(arguments.text("file")).filename().string(), repeated(text, size)};
    prose.text.resize(std::max(size, text.size()));
  }
  std::vector<Case> cases = {prose};
  if (arguments.toggle("hostile")) {
    for (Case& item : hostile_cases(static_cast<size_t>(arguments.integer("run")))) cases.push_back(std::move(item));
  }
  const Terminal& terminal = arguments.terminal();
  std::vector<Measured> rows;
  {
    Progress progress(terminal, "tokenizing", cases.size(), Progress::Unit::count);
    for (const Case& item : cases) {
      TRY(Measured row, measure(tokenizer, item, arguments.integer("repeat")));
      rows.push_back(std::move(row));
      progress.update(rows.size());
    }
  }
  arguments.toggle("json") ? print_json(terminal, rows) : print_rows(terminal, rows);
  return kExitOk;
}

}  // namespace

Verb bench_tokenize_verb() {
  return {.name = "bench tokenize",
          .summary = "measure how fast text becomes tokens on one processor",
          .group = "Measure and check",
          .flags = {model_flag(),
                    {.name = "file",
                     .alias = "-f",
                     .kind = Kind::path,
                     .value = "F",
                     .help = "text to use instead of generated prose"},
                    {.name = "size",
                     .kind = Kind::bytes,
                     .value = "BYTES",
                     .otherwise = "8M",
                     .least = 1,
                     .help = "how much prose"},
                    {.name = "hostile", .help = "also runs of one character, random letters and the like"},
                    {.name = "run",
                     .kind = Kind::bytes,
                     .value = "BYTES",
                     .otherwise = "1M",
                     .least = 1,
                     .help = "length of each of those"},
                    {.name = "repeat",
                     .alias = "-r",
                     .kind = Kind::integer,
                     .value = "N",
                     .otherwise = "3",
                     .least = 1,
                     .most = 1000,
                     .help = "repetitions; the median counts"},
                    {.name = "json", .help = "as a JSON array"}},
          .examples = {{"bench tokenize -m model.gguf", "MB/s on prose"},
                       {"bench tokenize -m ./Llama-3.2-1B -f book.txt --hostile",
                        "on a text of yours, and on the worst cases"}},
          .notes =
              "Speeds are per second of processor time of the one thread that works, so a busy machine shows the same.",
          .run = run_bench_tokenize};
}

}  // namespace millrace::apps
