// Calls that templates render, read back token by token, byte by byte and at once; and random text kept to tools by
// their grammar: every call that comes of it is known, parses and fits its schema. A few dozen cases are in the tree;
// templates and the cases of the Berkeley leaderboard are read where they lie beside the project.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <set>

#include "base/file.h"
#include "base/rng.h"
#include "grammar/schema.h"
#include "grammar/vocabulary.h"
#include "session/call_reader.h"

#if MILLRACE_SESSION_TEXT
namespace millrace {
namespace {

using Kind = AnswerPart::Kind;

std::filesystem::path beside(std::string_view name) {
  return std::filesystem::path(MILLRACE_SOURCE_DIR) / "../shared" / name;
}
std::filesystem::path in_tree(std::string_view name) {
  return std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/session/data/calls" / name;
}

struct Call {
  std::string name;
  JsonObject arguments;
};

struct Case {
  std::string id;
  std::vector<Tool> tools;
  std::vector<Call> calls;
};

Result<ChatTemplate> template_of(const std::filesystem::path& path) {
  return ChatTemplate::from({{{"default", read_file(path).value()}}, {{"bos_token", "<s>"}, {"eos_token", "</s>"}}});
}

const Tokenizer& tokenizer() {
  static const Tokenizer made = [] {
    auto checkpoint = Checkpoint::open(std::filesystem::path(MILLRACE_SOURCE_DIR) / "models/stories-14m-q8_0.gguf");
    return Tokenizer::open(*checkpoint).value();
  }();
  return made;
}

std::vector<std::string> cut_by(std::string_view text, size_t bytes) {
  std::vector<std::string> pieces;
  for (size_t at = 0; at < text.size(); at += bytes) pieces.emplace_back(text.substr(at, bytes));
  return pieces;
}

std::vector<std::string> cut_by_tokens(std::string_view text) {
  std::vector<std::string> pieces;
  const std::vector<Token> tokens = tokenizer().encode(text).value();
  for (Token token : tokens) pieces.push_back(tokenizer().token_bytes(token));
  return pieces;
}

std::vector<AnswerPart> read(const CallFormat& format, const std::vector<Tool>& tools,
                             const std::vector<std::string>& pieces, bool thinking = false) {
  CallReader reader(format, tools, thinking);
  std::vector<AnswerPart> parts;
  for (const std::string& piece : pieces) reader.push(piece, parts);
  reader.finish(parts);
  return parts;
}

std::vector<AnswerPart> read_all_ways(const CallFormat& format, const std::vector<Tool>& tools, const std::string& text,
                                      const std::string& name, bool thinking = false) {
  const auto whole = read(format, tools, {text}, thinking);
  EXPECT_EQ(read(format, tools, cut_by(text, 1), thinking), whole) << name << ": byte by byte";
  EXPECT_EQ(read(format, tools, cut_by(text, 7), thinking), whole) << name << ": by seven bytes";
  EXPECT_EQ(read(format, tools, cut_by_tokens(text), thinking), whole) << name << ": token by token";
  return whole;
}

std::string of_kind(const std::vector<AnswerPart>& parts, Kind kind) {
  std::string text;
  for (const AnswerPart& part : parts)
    if (part.kind == kind) text += part.text;
  return text;
}

void expect_calls(const std::vector<AnswerPart>& parts, const std::vector<Call>& calls, const std::string& about) {
  size_t count = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].kind != Kind::call) continue;
    ASSERT_LT(count, calls.size()) << about;
    EXPECT_EQ(parts[i].text, calls[count].name) << about;
    ASSERT_TRUE(i + 2 < parts.size() && parts[i + 1].kind == Kind::arguments && parts[i + 2].kind == Kind::ended)
        << about;
    auto arguments = parse_json(parts[i + 1].text);
    ASSERT_TRUE(arguments.ok()) << about << "\n" << parts[i + 1].text;
    EXPECT_EQ(*arguments, Json(calls[count].arguments)) << about;
    ++count;
  }
  EXPECT_EQ(count, calls.size()) << about;
}

JsonObject assistant(const Case& one, bool thinks, const std::string& field) {
  JsonArray list;
  for (size_t i = 0; i < one.calls.size(); ++i)
    list.push_back(JsonObject{
        {"id", fmt::format("iDcall{:03}", i)},
        {"type", "function"},
        {"function", JsonObject{{"name", one.calls[i].name}, {"arguments", to_text(one.calls[i].arguments)}}}});
  JsonObject message = {{"role", "assistant"}, {"content", "Let me see."}, {"tool_calls", std::move(list)}};
  if (thinks) message[field] = "A thought, 1 < 2.";
  if (thinks && field == "thinking") message["content"] = "";  // gpt-oss takes one of the two
  return message;
}

JsonArray tools_json(const Case& one) {
  JsonArray tools;
  for (const Tool& tool : one.tools)
    tools.push_back(JsonObject{
        {"type", "function"},
        {"function", JsonObject{{"name", tool.name},
                                {"description", "A tool."},
                                {"parameters", tool.parameters.is_null()
                                                   ? Json(JsonObject{{"type", "object"}, {"properties", JsonObject{}}})
                                                   : tool.parameters}}}});
  return tools;
}

// What the template makes of an assistant's turn, without what comes before every answer; none if it refuses.
std::optional<std::string> rendered(const ChatTemplate& chat_template, const Case& one, bool thinks,
                                    const std::string& field) {
  const JsonObject user = {{"role", "user"}, {"content", "Hello."}};
  Chat before{.messages = JsonArray{user}, .tools = tools_json(one), .add_generation_prompt = true};
  Chat after{.messages = JsonArray{user, assistant(one, thinks, field)}, .tools = tools_json(one)};
  after.add_generation_prompt = false;
  auto prompt = chat_template.render(before, {}, LocalTime()), whole = chat_template.render(after, {}, LocalTime());
  if (!prompt.ok() || !whole.ok()) return std::nullopt;
  size_t same = 0;
  while (same < prompt->size() && same < whole->size() && (*prompt)[same] == (*whole)[same]) ++same;
  // Not within a mark.
  const size_t mark = whole->substr(0, same).rfind('<');
  if (mark != std::string::npos && whole->find('>', mark) >= same && whole->find('>', mark) - mark < 40) same = mark;
  return whole->substr(same);
}

// BFCL's words for types, as JSON Schema has them.
Json as_schema(const Json& json) {
  if (json.is_array()) {
    JsonArray list;
    for (const Json& one : json.get_array()) list.push_back(as_schema(one));
    return list;
  }
  if (!json.is_object()) return json;
  static const std::map<std::string, std::string> kTypes = {
      {"dict", "object"},   {"HashMap", "object"}, {"float", "number"},   {"double", "number"},
      {"long", "integer"},  {"tuple", "array"},    {"Array", "array"},    {"ArrayList", "array"},
      {"String", "string"}, {"char", "string"},    {"Boolean", "boolean"}};
  JsonObject made;
  for (const auto& member : json.get_object()) {
    const Json& value = member.value();
    if (member.key() == "type" && value.is_string()) {
      const std::string type(value.get_string());
      if (type == "any") continue;
      const auto known = kTypes.find(type);
      made["type"] = known == kTypes.end() ? type : known->second;
    } else if (member.key() != "format" && member.key() != "default" && member.key() != "optional") {
      made[member.key()] = as_schema(value);
    }
  }
  return made;
}

// The first of the values that would be right, where they are of the kind they should be.
void add_truth(const Json& truth, Case& one) {
  for (const Json& call : truth.get_array()) {
    const auto& member = *call.get_object().begin();
    Call made{.name = std::string(member.key()), .arguments = {}};
    for (const auto& argument : member.value().get_object()) {
      const auto* list = argument.value().if_array();
      if (list != nullptr && !list->empty() && list->front() != Json(""))
        made.arguments[argument.key()] = list->front();
    }
    one.calls.push_back(std::move(made));
  }
}

bool fits(const Tool& tool, const JsonObject& arguments) {
  if (tool.parameters.is_null()) return arguments.empty();
  grammar::Exprs exprs;
  auto schemas = grammar::Schemas::read(tool.parameters, exprs);
  return schemas.ok() && (*schemas)->valid((*schemas)->root(), Json(arguments));
}

const Tool* tool_named(const Case& one, std::string_view name) {
  for (const Tool& tool : one.tools)
    if (tool.name == name) return &tool;
  return nullptr;
}

std::vector<Case> cases_in(const std::string& lines) {
  std::vector<Case> cases;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    const Json json = parse_json(std::string_view(lines).substr(at, end - at)).value();
    at = end + 1;
    Case one;
    if (const Json* id = find(json, "id")) one.id = std::string(id->get_string());
    for (const Json& function : json.at("functions").get_array()) {
      const Json* parameters = find(function, "parameters");
      one.tools.push_back({.name = std::string(function.at("name").get_string()),
                           .parameters = parameters == nullptr ? Json(nullptr) : as_schema(*parameters)});
    }
    if (const Json* calls = find(json, "calls")) {
      for (const Json& call : calls->get_array())
        one.calls.push_back({std::string(call.at("name").get_string()), call.at("arguments").get_object()});
    } else if (const Json* truth = find(json, "ground_truth")) {
      add_truth(*truth, one);
    }
    std::erase_if(one.calls, [&](const Call& call) {
      const Tool* tool = tool_named(one, call.name);
      return tool == nullptr || !fits(*tool, call.arguments);
    });
    cases.push_back(std::move(one));
  }
  return cases;
}

std::vector<Case> own_cases() { return cases_in(read_file(in_tree("cases.jsonl")).value()); }

std::vector<Case> public_cases() {
  const auto path = beside("data/bfcl-public.jsonl.xz");
  if (!std::filesystem::exists(path)) return {};
  std::string text;
  FILE* pipe = ::popen(("xz -dc '" + path.string() + "'").c_str(), "r");
  if (pipe == nullptr) return {};
  char buffer[65536];
  for (size_t got = 0; (got = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) text.append(buffer, got);
  ::pclose(pipe);
  return cases_in(text);
}

// A text that is JSON, of a property of which nothing is said: in bare tags nobody can tell.
bool unsure(const Case& one, const Call& call) {
  for (const auto& member : call.arguments) {
    const Json* properties = find(tool_named(one, call.name)->parameters, "properties");
    const Json* property = properties == nullptr ? nullptr : find(*properties, member.key());
    if (property != nullptr && find(*property, "type") != nullptr) continue;
    if (member.value().is_string() && parse_json(member.value().get_string()).ok()) return true;
  }
  return false;
}

void read_back(const std::filesystem::path& path, const std::vector<Case>& cases, int& done) {
  auto chat_template = template_of(path);
  ASSERT_TRUE(chat_template.ok()) << path;
  const CallFormat format = find_calls(*chat_template);
  if (!format.known()) return;
  for (Case one : cases) {
    const std::string name = path.filename().string();
    if (format.style == CallFormat::Style::tags)
      std::erase_if(one.calls, [&](const Call& c) { return unsure(one, c); });
    if (one.calls.empty()) continue;
    if (format.single) one.calls.resize(1);
    for (bool thinks : {false, true}) {
      if (thinks && !format.thinks()) continue;
      const auto text = rendered(*chat_template, one, thinks, format.think_field);
      if (!text) continue;
      const bool thought = text->find("A thought") != std::string::npos;
      const std::string_view begin = format.think_begin;
      const bool open = thought && text->find(begin.substr(format.lead.size())) > text->find("A thought");
      const auto parts = read_all_ways(format, one.tools, *text, name, open);
      expect_calls(parts, one.calls, name + "\n" + *text);
      if (thought) {
        EXPECT_EQ(of_kind(parts, Kind::reasoning), "A thought, 1 < 2.") << name << "\n" << *text;
      }
      ++done;
    }
  }
}

constexpr const char* kOwnTemplates[] = {"json.jinja",   "tags.jinja",     "list.jinja", "pairs.jinja", "quoted.jinja",
                                         "marked.jinja", "channels.jinja", "led.jinja",  "twice.jinja"};
constexpr int kOwn = static_cast<int>(std::size(kOwnTemplates));

TEST(CallCases, RenderedCallsAreReadBack) {
  const std::vector<Case> cases = own_cases();
  ASSERT_GE(cases.size(), 24U);
  int done = 0;
  for (const char* name : kOwnTemplates) {
    ASSERT_TRUE(find_calls(template_of(in_tree(name)).value()).known()) << name;
    read_back(in_tree(name), cases, done);
  }
  EXPECT_GE(done, kOwn * 24);
}

TEST(CallCases, OfEveryTemplateBeside) {
  const auto folder = beside("templates");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder.string();
  const std::vector<Case> cases = own_cases();
  // The list says of each what is found, and why there is nothing where there is nothing: neither may change unseen.
  std::map<std::string, std::string> listed;
  const std::string list = read_file(in_tree("templates.txt")).value();
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find('\n', at), list.size());
    const std::string line = list.substr(at, end - at);
    at = end + 1;
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.find(' ');
    listed[line.substr(0, space)] = line.substr(line.find_first_not_of(' ', space));
  }
  int done = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string name = entry.path().stem().string();
    ASSERT_TRUE(listed.contains(name)) << name << " is not in templates.txt";
    const Json style = calls_json(find_calls(template_of(entry.path()).value())).at("style");
    const std::string says = listed[name].substr(0, listed[name].find(':'));
    EXPECT_EQ(std::string(style.get_string()), says) << name;
    if (says == "none") std::printf("%s: %s\n", name.c_str(), listed[name].c_str());
    const int before = done;
    read_back(entry.path(), cases, done);
    if (says != "none") {
      EXPECT_GE(done - before, 20) << name;
    } else {
      EXPECT_EQ(done, before) << name;
    }
    listed.erase(name);
  }
  for (const auto& [name, says] : listed) ADD_FAILURE() << name << " is listed, but not there";
  EXPECT_GE(done, 32 * 20);
  std::printf("%d turns rendered and read\n", done);
}

std::shared_ptr<const GrammarVocabulary> byte_vocabulary() {
  std::vector<std::string> bytes;
  for (int b = 0; b < 256; ++b) bytes.push_back(std::string(1, static_cast<char>(b)));
  bytes.push_back("");
  return std::make_shared<GrammarVocabulary>(std::move(bytes), std::vector<Token>{256});
}

// Random text of the grammar, with a liking for what ends things.
std::string sampled(Grammar& grammar, const CallFormat& format, const std::vector<Tool>& tools, uint64_t seed) {
  std::vector<std::string> closers = {"\"", format.end, "}", format.next, "]", "0", "a"};
  if (!format.quote.empty()) {  // a text ends only where something follows it
    closers.insert(closers.begin(), format.quote + format.end);
    for (const Tool& tool : tools) {
      const Json* properties = find(tool.parameters, "properties");
      for (const auto& member : properties == nullptr ? JsonObject() : properties->get_object())
        closers.push_back(format.quote + format.next + std::string(member.key()) + format.equals[CallFormat::kNumeric]);
    }
  }
  std::string text;
  auto state = grammar.start();
  uint32_t draw = 0;
  const auto random = [&](uint64_t below) {
    return static_cast<uint64_t>(uniform({.seed = seed, .position = ++draw}) * static_cast<double>(below));
  };
  while (text.size() < 4'000) {
    if (grammar.finished(state) || (grammar.accepts(state) && random(4) == 0)) return text;
    const bool hurry = text.size() > 200 || random(3) == 0;
    bool taken = false;
    const size_t turn = random(closers.size());
    for (size_t i = 0; hurry && i < closers.size(); ++i) {
      const std::string& closer = closers[(turn + i) % closers.size()];
      if (closer.empty()) continue;
      const auto next = grammar.next_bytes(state, closer);
      if (next == Grammar::kRefused) continue;
      state = next;
      text += closer;
      taken = true;
      break;
    }
    if (taken) continue;
    const auto mask = grammar.allowed(state);
    if (!mask.ok()) return "";
    std::vector<int> allowed;
    for (int b = 0; b < 256; ++b)
      if ((*mask)->has(b)) allowed.push_back(b);
    if (allowed.empty()) return grammar.accepts(state) ? text : "";
    const char byte = static_cast<char>(allowed[random(allowed.size())]);
    text += byte;
    state = grammar.next_bytes(state, std::string_view(&byte, 1));
  }
  return "";
}

// `tries`: an answer that has not ended after 4,000 bytes is begun anew so often. `refused`: the ids of cases whose
// tools no answer can be kept to.
void keep_to(const CallFormat& format, const std::vector<Case>& cases, std::string_view name, int& finished, int& all,
             uint64_t tries = 1, std::set<std::string>* refused = nullptr) {
  const auto vocabulary = byte_vocabulary();
  for (size_t i = 0; i < cases.size(); ++i) {
    ToolUse use{.tools = cases[i].tools, .required = true};
    for (Tool& tool : use.tools) tool.strict = true;
    auto grammar = Grammar::compile(calls_source(format, use), vocabulary);
    if (!grammar.ok()) {  // with a pointer to what cannot be kept to
      EXPECT_TRUE(grammar.error().message.starts_with('/')) << grammar.error().message;
      std::printf("%s in %s is refused: %s\n", cases[i].id.c_str(), std::string(name).c_str(),
                  grammar.error().message.c_str());
      if (refused != nullptr) refused->insert(cases[i].id);
      continue;
    }
    ++all;
    std::string text;
    for (uint64_t seed = 0; text.empty() && seed < tries; ++seed)
      text = sampled(**grammar, format, cases[i].tools, i + 1 + seed * 10'000);
    if (text.empty()) {
      std::printf("%s in %s has no end\n", cases[i].id.c_str(), std::string(name).c_str());
      continue;
    }
    ++finished;
    CallReader reader(format, cases[i].tools, false);
    std::vector<AnswerPart> parts;
    reader.push(text, parts);
    reader.finish(parts);
    ASSERT_FALSE(parts.empty()) << name << "\n" << text;
    ASSERT_EQ(parts[0].kind, Kind::call) << name << "\n" << text;
    for (size_t k = 0; k < parts.size(); ++k) {
      ASSERT_NE(parts[k].kind, Kind::content) << name << "\n" << text << "\n" << parts[k].text;
      if (parts[k].kind != Kind::call) continue;
      const Tool* tool = tool_named(cases[i], parts[k].text);
      ASSERT_NE(tool, nullptr) << text;
      ASSERT_EQ(parts.at(k + 2).kind, Kind::ended) << text;
      auto arguments = parse_json(parts[k + 1].text);
      ASSERT_TRUE(arguments.ok() && arguments->is_object()) << name << "\n" << text << "\n" << parts[k + 1].text;
      EXPECT_TRUE(fits(*tool, arguments->get_object())) << name << "\n" << text << "\n" << parts[k + 1].text;
    }
  }
}

TEST(CallCases, RandomTextThatIsKeptToToolsFitsThem) {
  int finished = 0, all = 0;  // a case that is refused counts as none
  for (const char* name : kOwnTemplates)
    keep_to(find_calls(template_of(in_tree(name)).value()), own_cases(), name, finished, all);
  EXPECT_EQ(all, kOwn * 24);
  EXPECT_GE(finished * 10, all * 9);
}

TEST(CallCases, PublicCasesAreReadBackAndKeptTo) {
  const std::vector<Case> cases = public_cases();
  if (cases.empty()) GTEST_SKIP() << "no " << beside("data/bfcl-public.jsonl.xz").string();
  int done = 0, finished = 0, all = 0;
  std::set<std::string> refused;
  const char* const names[] = {"json.jinja",   "tags.jinja",     "pairs.jinja", "quoted.jinja",
                               "marked.jinja", "channels.jinja", "led.jinja",   "twice.jinja"};
  for (size_t which = 0; which < std::size(names); ++which) {
    read_back(in_tree(names[which]), cases, done);
    std::vector<Case> some;  // every case is kept to in one of the formats
    for (size_t i = which; i < cases.size(); i += std::size(names)) some.push_back(cases[i]);
    keep_to(find_calls(template_of(in_tree(names[which])).value()), some, names[which], finished, all, 20, &refused);
  }
  EXPECT_GT(done, 2000);
  // What nobody can answer: a property that must be there has a type that none of its `enum` are of.
  EXPECT_EQ(refused, (std::set<std::string>{"live_relevance_8-8-0", "live_simple_71-35-0"}));
  EXPECT_EQ(static_cast<size_t>(all) + refused.size(), cases.size());
  // Where objects may have any further properties, random text may go on adding them.
  EXPECT_GE(finished * 100, all * 99);
  std::printf("%d turns read back; %d of %d random answers ended, all of them right\n", done, finished, all);
}

TEST(CallCases, TwoHundredToolsWithAMegabyteOfSchemas) {
  Case one;
  size_t bytes = 0;
  for (int i = 0; i < 200; ++i) {
    JsonObject properties;
    for (int k = 0; k < 30; ++k)
      properties[fmt::format("property_{}", k)] = JsonObject{{"type", k % 3 == 0   ? "string"
                                                                      : k % 3 == 1 ? "integer"
                                                                                   : "boolean"},
                                                             {"description", std::string(120, 'd')}};
    one.tools.push_back({.name = fmt::format("tool_{}", i),
                         .parameters = JsonObject{{"type", "object"}, {"properties", properties}},
                         .strict = true});
    bytes += to_text(one.tools.back().parameters).size();
  }
  EXPECT_GT(bytes, 1'000'000U);
  int finished = 0, all = 0;
  for (const char* name : {"json.jinja", "tags.jinja", "quoted.jinja", "channels.jinja", "led.jinja", "twice.jinja"})
    keep_to(find_calls(template_of(in_tree(name)).value()), {one}, name, finished, all, 20);
  EXPECT_EQ(finished, 6);
}

// A model that never stops calling: every call up to the limit is told, the last one as far as it came.
TEST(CallCases, ThousandsOfCallsUntilTheLimit) {
  const std::vector<Tool> tools = {{.name = "f", .parameters = JsonObject{{"type", "object"}}}};
  for (const char* name : {"json.jinja", "tags.jinja", "list.jinja", "pairs.jinja", "quoted.jinja", "marked.jinja",
                           "led.jinja", "twice.jinja"}) {
    const CallFormat f = find_calls(template_of(in_tree(name)).value());
    const bool json = f.style == CallFormat::Style::json;
    const std::string named = f.twice.empty() ? "f" : "f" + f.twice + "f";
    const std::string call =
        named + (json ? f.middle + R"({"k": "</v>"})" : f.open + "k" + f.equals[0] + "v" + f.quote);
    std::string text = f.begin.substr(f.lead.size()) + call;
    constexpr size_t kCalls = 4000;
    for (size_t i = 1; i < kCalls; ++i) text += f.between + call;
    text.resize(text.size() - 3);
    for (const auto& [hole, value] : {std::pair{kCallId, "abcdefghi"}, {kCallIndex, "1"}, {kCallCount, "1"}})
      for (size_t at = text.find(hole); at != std::string::npos; at = text.find(hole)) text.replace(at, 1, value);
    for (size_t cut : {size_t{1}, size_t{1000}}) {
      const auto parts = read(f, tools, cut_by(text, cut));
      size_t begun = 0, ended = 0;
      for (const AnswerPart& part : parts) {
        begun += part.kind == Kind::call;
        ended += part.kind == Kind::ended;
      }
      EXPECT_EQ(begun, f.single ? 1U : kCalls) << name;
      EXPECT_EQ(ended, f.single ? 1U : kCalls - 1) << name;
    }
  }
}

// A megabyte of anything takes no longer than its bytes: every one of these took minutes where time grew with squares.
TEST(CallCases, LongAnswersByteByByte) {
  const std::vector<Tool> tools = {{.name = "f", .parameters = JsonObject{{"type", "object"}}}};
  constexpr size_t kLong = 1'000'000;
  for (const char* name : {"json.jinja", "tags.jinja", "pairs.jinja", "quoted.jinja", "marked.jinja"}) {
    const CallFormat format = find_calls(template_of(in_tree(name)).value());
    std::string starts;
    while (starts.size() < kLong) starts += format.begin;
    std::string head = format.begin + "f";
    head +=
        format.style == CallFormat::Style::json ? format.middle + "{\"k\": \"" : format.open + "k" + format.equals[0];
    for (const std::string& text :
         {std::string(kLong, ' '), starts, head + std::string(kLong, '\n'), head + std::string(kLong, '<'),
          format.begin + "f" + format.open + std::string(kLong, '>'), format.begin + std::string(kLong, ' ')}) {
      CallReader reader(format, tools, false);
      std::vector<AnswerPart> parts;
      size_t said = 0;
      for (char c : text) {
        reader.push({&c, 1}, parts);
        for (const AnswerPart& part : parts) said += part.text.size();
        parts.clear();
      }
      reader.finish(parts);
      for (const AnswerPart& part : parts) said += part.text.size();
      EXPECT_GT(said, kLong / 2) << name;
    }
  }
}

}  // namespace
}  // namespace millrace
#endif
