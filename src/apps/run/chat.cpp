#include <algorithm>
#include <cstdio>

#include "apps/cli/interrupt.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/adapters.h"
#include "apps/run/chat_input.h"
#include "apps/run/flags.h"
#include "apps/run/report.h"
#include "apps/run/speculate.h"
#include "base/file.h"
#include "base/json.h"
#include "session/conversation.h"

namespace millrace::apps {
namespace {

constexpr int32_t kUsualContext = 4096;

constexpr std::string_view kHelp =
    "/reset         forget the chat\n"
    "/save FILE     write the chat as JSON\n"
    "/stats         tokens, speed and memory so far\n"
    "/help          this\n"
    "/exit          leave (so does the end of input)\n"
    "A line that ends in \\ goes on in the next; \"\"\" starts and ends a text of several lines.\n"
    "Ctrl-C stops an answer and keeps the chat.";

struct ChatState {
  const Arguments& arguments;
  const Terminal& terminal;
  const LoadedModel& model;
  Conversation conversation;
  GenerateOptions options;
  std::vector<std::string> stops;
};

void show_stats(const ChatState& chat) {
  const GenerateTimes& times = chat.conversation.times();
  const int32_t turns = chat.conversation.turns();
  chat.terminal.note("chat    {} {}, {} tokens, seed {}", turns, turns == 1 ? "turn" : "turns",
                     chat.conversation.tokens(), chat.options.sampling.seed);
  report(chat.terminal, chat.model, times, "all turns");
}

void save(const ChatState& chat, std::string_view file) {
  while (file.starts_with(' ')) file.remove_prefix(1);
  if (file.empty()) {
    chat.terminal.note("/save needs a file name");
    return;
  }
  auto write = [&]() -> Result<void> {
    TRY(AtomicFile out, AtomicFile::create(std::string(file)));
    TRY_VOID(out.write(to_pretty_text(chat.conversation.to_json()) + "\n"));
    return out.commit();
  };
  auto written = write();
  if (written.ok()) {
    chat.terminal.note("saved {} messages to {}", chat.conversation.messages().size(), file);
  } else {
    chat.terminal.warn("{}", written.error().message);
  }
}

enum class Next : uint8_t { ask, again, leave };

// What starts with a slash is for us, not for the model.
Next command(ChatState& chat, const std::string& text) {
  if (text.empty()) return Next::again;
  if (text[0] != '/') return Next::ask;
  const std::string word = text.substr(0, text.find(' '));
  if (word == "/exit" || word == "/quit" || word == "/bye") return Next::leave;
  if (word == "/reset" || word == "/clear") {
    chat.conversation.reset();
    chat.terminal.note("the chat is forgotten");
  } else if (word == "/save") {
    save(chat, std::string_view(text).substr(word.size()));
  } else if (word == "/stats") {
    show_stats(chat);
  } else if (word == "/help" || word == "/?") {
    chat.terminal.note("{}", kHelp);
  } else {
    chat.terminal.note("no command {}; /help lists them", printable(word));
  }
  return Next::again;
}

// One question and its answer. Whatever goes wrong with it, the chat goes on; an error that will come again ends it.
Result<void> answer(ChatState& chat, std::string question) {
  const bool json = chat.arguments.toggle("json");
  Interruptible scope;
  bool started = false;
  std::string text;
  auto show = [&](std::string_view piece) {
    // Some models say a space or a line break first; nobody needs to see it.
    if (!started) piece.remove_prefix(std::min(piece.find_first_not_of(" \n"), piece.size()));
    started = started || !piece.empty();
    text += piece;
    if (!json) {
      chat.terminal.write_out(piece);
      std::fflush(stdout);
    }
    return !Interruptible::interrupted();
  };
  auto result = chat.conversation.ask(std::move(question), chat.options, chat.stops, show,
                                      [] { return Interruptible::interrupted(); });
  if (!json && !text.ends_with('\n')) chat.terminal.write_out("\n");
  std::fflush(stdout);
  if (Interruptible::interrupted()) {
    if (interrupted_exit_code() != kExitInterrupted) return interrupted_error();  // not Ctrl-C: asked to end
    scope.clear();
    chat.terminal.note("(stopped)");
    return {};
  }
  if (!result.ok()) return result.error();
  if (json) {
    chat.terminal.print("{}\n", to_text(JsonObject{{"text", valid_utf8(text)},
                                                   {"finish_reason", ending_name(result->ending)},
                                                   {"usage", times_json(result->times)}}));
    std::fflush(stdout);
  } else if (result->ending == Ending::context || result->ending == Ending::length) {
    chat.terminal.note("(ended by {}: the chat has {} tokens)", ending_name(result->ending),
                       chat.conversation.tokens());
  }
  return {};
}

Result<int> run(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  TRY(auto loaded, load_model(arguments, arguments.integer("ctx-size")));
  // Better to hear now than after the first question that there is no template.
  TRY_VOID(render_chat(*loaded, std::vector<Message>{{"user", "Hello"}}));
  TRY(Sampling sampling, sampling_of(arguments, *loaded));
  ExecutorOptions wanted;
  wanted.context = static_cast<int32_t>(arguments.integer("ctx-size"));
  if (wanted.context == 0) wanted.context = std::min(loaded->context(), kUsualContext);
  wanted.rows = step_rows(arguments, "ubatch-size", 512);
  wanted.kv = kv_type(arguments, *loaded);
  TRY(auto drafters, drafters_of(arguments, *loaded, wanted.context));
  wanted.wanted = drafters->wanted();
  TRY(auto executor, Executor::create(loaded->model(), loaded->backend(), wanted));
  TRY_VOID(use_adapters(arguments, *executor));
  TRY(auto drafter, drafters->drafter(*executor, loaded->backend()));
  Generator generator(*executor, std::move(drafter), drafters->most(), drafters->rule());
  ChatState chat{arguments,
                 terminal,
                 *loaded,
                 Conversation(*loaded, generator, arguments.text("system")),
                 generate_options(arguments, *loaded, sampling),
                 arguments.texts("stop")};
  Bounds bounds(*loaded);
  TRY(chat.options.constraint, constraint_of(arguments, bounds, {.continues = false}));
  ChatInput input;
  if (input.interactive()) terminal.note("{}", "Say something; /help lists commands, /exit leaves.");
  if (arguments.given("prompt")) {
    TRY_VOID(answer(chat, arguments.text("prompt")));
  }
  while (auto text = input.next()) {
    const Next next = command(chat, *text);
    if (next == Next::leave) break;
    if (next == Next::again) continue;
    auto answered = answer(chat, *text);
    if (answered.ok()) continue;
    if (!input.interactive() || answered.error().code == Code::cancelled) return answered.error();
    terminal.warn("{}", answered.error().message);
  }
  if (!arguments.toggle("json")) show_stats(chat);
  return kExitOk;
}

}  // namespace

Verb chat_verb() {
  return {
      .name = "chat",
      .summary = "chat with a model",
      .group = "Use a model",
      .flags = joined(
          {{model_flag(),
            {.name = "system",
             .alias = "-sys --system-prompt",
             .kind = Kind::text,
             .value = "TEXT",
             .help = "what the model is told first"},
            {.name = "prompt", .alias = "-p", .kind = Kind::text, .value = "TEXT", .help = "the first thing to say"},
            {.name = "ctx-size",
             .alias = "-c --ctx --max-model-len",
             .kind = Kind::integer,
             .value = "N",
             .otherwise = "0",
             .least = 0,
             .most = 1 << 30,
             .help = "tokens the chat may have; 0: up to 4096"},
            {.name = "json", .help = "print one JSON object for each answer"}},
           stopping_flags(),
           bound_flags(),
           sampling_flags(),
           speculate_flags(),
           adapter_flags(),
           {ranks_flag()},
           machine_flags()}),
      .examples = {{"chat", "with the shipped model"},
                   {"chat -m model.gguf --system 'Answer in one sentence.'", "with another, told how"}},
      .notes =
          "Commands: /reset forgets the chat, /save FILE writes it as JSON, /stats shows tokens and speed, /help lists "
          "all. Ctrl-C "
          "stops an answer and keeps the chat. Of what was said before, nothing is computed twice.",
      .run = run};
}

}  // namespace millrace::apps
