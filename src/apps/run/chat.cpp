#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include "apps/cli/input.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/model_path.h"
#include "apps/cli/output.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/adapters.h"
#include "apps/run/chat_input.h"
#include "apps/run/chat_show.h"
#include "apps/run/diffusion.h"
#include "apps/run/flags.h"
#include "apps/run/report.h"
#include "apps/run/speculate.h"
#include "base/file.h"
#include "base/human.h"
#include "base/json.h"
#include "session/added_sampling.h"
#include "session/conversation.h"

namespace millrace::apps {
namespace {

constexpr int32_t kUsualContext = 4096;

constexpr std::string_view kHelp =
    "/system TEXT   tell the model something else first; without TEXT nothing\n"
    "/set NAME X    change a value of sampling (temperature, top_p, seed, max_tokens ...); /set shows all\n"
    "/regen         the last answer again, with another seed\n"
    "/reset         forget the chat\n"
    "/save FILE     write the chat as JSON; /save --force FILE over one that is there\n"
    "/load FILE     go on with a chat that was saved\n"
    "/stats         tokens, speed and memory so far\n"
    "/help          this\n"
    "/exit          leave (so does the end of input)\n"
    "A line that ends in \\ goes on in the next; \"\"\" starts and ends a text of several lines; a paste may have "
    "many.\n"
    "Ctrl-C clears the line, stops an answer and keeps the chat, and leaves when pressed twice.";

struct ChatState {
  const Arguments& arguments;
  const Terminal& terminal;
  const LoadedModel& model;
  Conversation conversation;
  GenerateOptions options;
  std::vector<std::string> stops;
  std::optional<Ending> ended = {};  // how the last answer did
};

void show_stats(const ChatState& chat) {
  const GenerateTimes& times = chat.conversation.times();
  const int32_t turns = chat.conversation.turns();
  chat.terminal.note("chat    {}, {}, seed {}", counted(turns, "turn"), counted(chat.conversation.tokens(), "token"),
                     chat.options.sampling.seed);
  report(chat.terminal, chat.model, times,
         chat.ended ? fmt::format("the last answer ended by: {}", ending_name(*chat.ended)) : "");
  note_passes(chat.terminal, times, chat.options.fill);
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// How many messages there are, in words.
std::string messages_of(const ChatState& chat) {
  return counted(static_cast<int64_t>(chat.conversation.messages().size()), "message");
}

Result<void> save(const ChatState& chat, std::string_view file) {
  constexpr std::string_view kForce = "--force";
  const bool replace = file == kForce || file.starts_with(fmt::format("{} ", kForce));
  if (replace) file = trimmed(file.substr(kForce.size()));
  if (file.empty()) return error(Code::invalid, "/save needs a file name");
  if (!replace) TRY_VOID(check_absent(std::string(file), "/save --force FILE"));
  TRY(AtomicFile out, AtomicFile::create(std::string(file)));
  TRY_VOID(out.write(to_pretty_text(chat.conversation.to_json()) + "\n"));
  TRY_VOID(out.commit());
  chat.terminal.note("saved {} to {}", messages_of(chat), printable(file));
  return {};
}

Result<void> load(ChatState& chat, std::string_view file) {
  if (file.empty()) return error(Code::invalid, "/load needs a file name");
  TRY(const std::string text, read_file(std::string(file), size_t{64} << 20));
  auto json = parse_json(text);
  if (!json.ok()) return within(file, std::move(json).error());
  if (auto loaded = chat.conversation.load(*json); !loaded.ok()) return within(file, loaded.error());
  chat.terminal.note("loaded {} from {}", messages_of(chat), printable(file));
  return {};
}

// Values of sampling by their names, and those that are said of one answer only.
Result<void> set(ChatState& chat, std::string_view words) {
  GenerateOptions& options = chat.options;
  if (words.empty()) {
    for (const SamplingValue& value : sampling_values()) {
      const double number = value.number != nullptr ? options.sampling.*value.number : options.sampling.*value.integer;
      chat.terminal.note("{:<20} {}", value.name, number);
    }
    chat.terminal.note("{:<20} {}\n{:<20} {}", "seed", options.sampling.seed, "max_tokens", options.max_tokens);
    return {};
  }
  const size_t space = words.find(' ');
  const std::string name(words.substr(0, space));
  const std::string text(space == words.npos ? "" : trimmed(words.substr(space)));
  double number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || failed != std::errc() || end != text.data() + text.size())
    return error(Code::invalid, "/set {}: expected a number, as in /set temperature 0.7", name);
  Sampling sampling = options.sampling;
  std::vector<std::string> known = {"seed", "max_tokens"};
  for (const SamplingValue& value : sampling_values()) known.emplace_back(value.name);
  if (name == "seed" || name == "max_tokens") {
    if (number != std::floor(number) || number < (name == "seed" ? 0 : -1) || number > 2e9)
      return error(Code::invalid, "/set {}: {} is no number it can have", name, text);
    if (name == "seed") sampling.seed = static_cast<uint64_t>(number);
    if (name == "max_tokens") options.max_tokens = static_cast<int32_t>(number);
  } else if (std::find(known.begin(), known.end(), name) != known.end()) {
    SamplingDefaults chosen;
    add_sampling(chosen, JsonObject{{name, number}});
    if (!chosen.ignored.empty()) return error(Code::invalid, "{}", chosen.ignored.front());
    for (const SamplingValue& value : sampling_values()) {
      if (value.name != name) continue;
      if (value.number != nullptr) sampling.*value.number = chosen.sampling.*value.number;
      if (value.integer != nullptr) sampling.*value.integer = chosen.sampling.*value.integer;
    }
    TRY_VOID(check_sampling(sampling, chat.model.vocab()));
  } else {
    const auto guess = nearest(name, known);
    return error(Code::invalid, "there is no value '{}'{}", name,
                 guess ? fmt::format("; did you mean {}?", *guess) : "");
  }
  options.sampling = std::move(sampling);
  chat.terminal.note("{} is {}", name, text);
  return {};
}

enum class Next : uint8_t { ask, again, regenerate, leave };

// What starts with a slash is for us, not for the model.
Next command(ChatState& chat, const std::string& text) {
  if (text.empty()) return Next::again;
  if (text[0] != '/') return Next::ask;
  const std::string word = text.substr(0, text.find(' '));
  const std::string_view rest = trimmed(std::string_view(text).substr(word.size()));
  Result<void> done;
  if (word == "/exit" || word == "/quit" || word == "/bye") return Next::leave;
  if (word == "/regen" || word == "/regenerate") return Next::regenerate;
  if (word == "/reset" || word == "/clear") {
    chat.conversation.reset();
    chat.terminal.note("the chat is forgotten");
  } else if (word == "/system") {
    chat.conversation.set_system(std::string(rest));
    chat.terminal.note("{}", rest.empty() ? "no system message" : "the system message is another one");
  } else if (word == "/set") {
    done = set(chat, rest);
  } else if (word == "/save") {
    done = save(chat, rest);
  } else if (word == "/load") {
    done = load(chat, rest);
  } else if (word == "/stats") {
    show_stats(chat);
  } else if (word == "/help" || word == "/?") {
    chat.terminal.note("{}", kHelp);
  } else {
    chat.terminal.note("no command {}; /help lists them", printable(word));
  }
  if (!done.ok()) chat.terminal.warn("{}", printable(done.error().message));
  return Next::again;
}

void print_json(const ChatState& chat, const ChatShow& shown, const Generated& generated) {
  JsonObject out = {{"text", valid_utf8(shown.content())},
                    {"finish_reason", ending_name(generated.ending)},
                    {"usage", times_json(generated.times)}};
  if (!shown.calls().empty()) out["calls"] = shown.calls();
  chat.terminal.print("{}\n", to_text(out));
  std::fflush(stdout);
}

// One turn: `speak` says something and passes on what it hears. Whatever goes wrong with it, the chat goes on; an error
// that will come again ends it.
using Speak = std::function<Result<Generated>(const Conversation::Show&, const std::function<bool()>&)>;
Result<void> turn(ChatState& chat, const Speak& speak) {
  const bool json = chat.arguments.toggle("json");
  Interruptible scope;
  ChatShow shown(chat.terminal, json);
  auto show = [&](const AnswerPart& part) {
    shown.add(part);
    return !Interruptible::interrupted();
  };
  auto result = speak(show, [] { return Interruptible::interrupted(); });
  if (result.ok() || Interruptible::interrupted()) shown.end();
  if (Interruptible::interrupted()) {
    if (interrupted_exit_code() != kExitInterrupted) return interrupted_error();  // not Ctrl-C: asked to end
    scope.clear();
    chat.ended = Ending::stopped;
    chat.terminal.note("(stopped)");
    return {};
  }
  if (!result.ok()) return result.error();
  chat.ended = result->ending;
  if (json) {
    print_json(chat, shown, *result);
  } else if (result->ending == Ending::context || result->ending == Ending::length) {
    chat.terminal.note("(ended by {}: the chat has {})", ending_name(result->ending),
                       counted(chat.conversation.tokens(), "token"));
  }
  return {};
}

Result<void> answer(ChatState& chat, const std::string& question) {
  return turn(chat, [&](const Conversation::Show& show, const std::function<bool()>& interrupted) {
    return chat.conversation.ask(question, chat.options, chat.stops, show, interrupted);
  });
}

Result<void> regenerate(ChatState& chat) {
  ++chat.options.sampling.seed;
  return turn(chat, [&](const Conversation::Show& show, const std::function<bool()>& interrupted) {
    return chat.conversation.again(chat.options, chat.stops, show, interrupted);
  });
}

// While the model waits for its calls, what is typed is what they give. False: the end of input.
Result<bool> answer_calls(ChatState& chat, ChatInput& input) {
  for (std::vector<std::string> names = chat.conversation.calls(); !names.empty(); names = chat.conversation.calls()) {
    std::vector<std::string> results;
    for (const std::string& name : names) {
      auto text = input.next(fmt::format("{} gives> ", printable(name)));
      if (!text) return false;
      results.push_back(std::move(*text));
    }
    TRY_VOID(turn(chat, [&](const Conversation::Show& show, const std::function<bool()>& interrupted) {
      return chat.conversation.give(results, chat.options, chat.stops, show, interrupted);
    }));
  }
  return true;
}

Result<void> use_tools(ChatState& chat, const std::string& file) {
  TRY(const std::string text, read_input(file));
  auto json = parse_json(text);
  if (!json.ok()) return within(file, std::move(json).error());
  const Json* list = json->is_object() ? find(*json, "tools") : &*json;
  if (list == nullptr || !list->is_array()) return error(Code::invalid, "{}: expected an array of tools", file);
#if MILLRACE_SESSION_TEXT
  if (!chat.model.calls().known())
    return error(Code::unsupported,
                 "how this model writes calls of tools is not understood (`millrace template --calls`)");
#endif
  if (auto used = chat.conversation.use_tools(list->get_array()); !used.ok()) return within(file, used.error());
  return {};
}

Result<void> take_turns(ChatState& chat, ChatInput& input) {
  while (auto text = input.next()) {
    const Next next = command(chat, *text);
    if (next == Next::leave) break;
    if (next == Next::again) continue;
    auto answered = next == Next::ask ? answer(chat, *text) : regenerate(chat);
    if (answered.ok()) {
      auto more = answer_calls(chat, input);
      if (more.ok() && !*more) break;
      if (!more.ok()) answered = more.error();
    }
    if (answered.ok()) continue;
    if (!input.interactive() || answered.error().code == Code::cancelled) return answered.error();
    chat.terminal.warn("{}", answered.error().message);
  }
  return {};
}

Result<int> run_chat(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  TRY(auto loaded, load_model(arguments, arguments.integer("ctx-size")));
  // Better to hear now than after the first question that there is no template.
  TRY_VOID(render_chat(*loaded, std::vector<Message>{{"user", "Hello"}}));
  TRY(Sampling sampling, sampling_of(arguments, *loaded));
  ExecutorOptions wanted;
  wanted.context = static_cast<int32_t>(arguments.integer("ctx-size"));
  if (wanted.context == 0) wanted.context = usual_context(*loaded, kUsualContext);
  warn_of_length(terminal, *loaded, wanted.context);
  wanted.rows = step_rows(arguments, "ubatch-size", 512);
  wanted.kv = kv_type(arguments, *loaded);
  TRY(auto drafters, drafters_of(arguments, *loaded, wanted.context));
  TRY(auto generator, Generator::create(loaded->model(), loaded->backend(), wanted, drafters->for_engine()));
  TRY_VOID(use_adapters(arguments, generator->executor()));
  ChatState chat{arguments,
                 terminal,
                 *loaded,
                 Conversation(*loaded, *generator, arguments.text("system")),
                 generate_options(arguments, *loaded, sampling),
                 arguments.texts("stop")};
  TRY(chat.options.fill, fill_of(arguments, *loaded));
  Bounds bounds(*loaded);
  TRY(chat.options.constraint, constraint_of(arguments, bounds, {.continues = false}));
  if (arguments.given("tools")) TRY_VOID(use_tools(chat, arguments.text("tools")));
  ChatInput input(terminal, arguments.toggle("history"));
  if (input.interactive()) terminal.note("{}", "Say something; /help lists commands, /exit leaves.");
  if (arguments.given("prompt")) {
    TRY_VOID(answer(chat, arguments.text("prompt")));
    TRY(const bool more, answer_calls(chat, input));
    if (!more) return kExitOk;
  }
  TRY_VOID(take_turns(chat, input));
  if (!arguments.toggle("json")) show_stats(chat);
  return kExitOk;
}

}  // namespace

Verb chat_verb() {
  return {
      .name = "chat",
      .summary = "chat with a model",
      .group = "Use a model",
      .operands = {model_operand()},
      .flags = joined(
          {hub_flags(),
           {model_flag(),
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
            path_flag("chat-template", "F.jinja", "a chat template instead of the model's own"),
            {.name = "tools",
             .kind = Kind::path,
             .value = "FILE",
             .help = "JSON array of tools the model may call; calls are shown, and you type what they give"},
            {.name = "history", .otherwise = "1", .help = "what was typed before is there, and what is typed is kept"},
            {.name = "json", .help = "print one JSON object for each answer"}},
           stopping_flags(),
           bound_flags(),
           diffusion_flags(),
           sampling_flags(),
           speculate_flags(),
           adapter_flags(),
           {ranks_flag(), pipeline_flag(), whole_experts_flag()},
           machine_flags()}),
      .examples = {{"chat", "with the shipped model"},
                   {"chat owner/name:Q4_K_M", "with one that was pulled"},
                   {"chat -m model.gguf --system 'Answer in one sentence.'", "with another, told how"}},
      .notes =
          "Commands: /system TEXT, /set NAME X, /regen, /reset, /save FILE, /load FILE, /stats, /help. Ctrl-C clears "
          "the "
          "line, stops an answer and keeps the chat, and leaves when pressed twice. Of what was said before, nothing "
          "is "
          "computed twice. What is typed is kept in $XDG_STATE_HOME/millrace/chat_history (~/.local/state), for you "
          "alone.",
      .run = run_chat};
}

}  // namespace millrace::apps
