#include "text/calls.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "text/call_probe.h"

namespace millrace {
namespace {

using namespace probe;

class CallProber {
 public:
  CallProber(const Probe& ask, const ChatAbilities& abilities) : probe_(ask, abilities) {}

  CallFormat run() {
    auto plain = turn(JsonObject{{"role", "assistant"}, {"content", text_json(kSaid)}});
    if (!plain) return {};
    said_ = *plain;
    if (find_channels()) return format_;
    if (!found(find_json(false)) && !found(find_tags()) && !found(find_json(true)))
      format_.style = CallFormat::Style::none;
    find_thinking();
    if (!format_.known()) {
      CallFormat none;
      none.think_begin = format_.think_begin;
      none.think_end = format_.think_end;
      none.think_field = format_.think_field;
      return none;
    }
    shorten_call_end();
    find_trigger();
    return format_;
  }

 private:
  // What was tried in vain leaves nothing behind.
  bool found(bool yes) {
    if (!yes) format_ = {};
    return yes;
  }
  std::optional<std::string> turn(JsonObject message) const { return probe_.turn(std::move(message)); }
  JsonObject calling(const std::vector<ProbeCall>& calls) const { return probe_.calling(calls); }
  std::optional<std::string> calls_part(const std::vector<ProbeCall>& calls,
                                        const CallProbe::Types& types = CallProbe::kStrings) {
    return probe_.calls_part(said_, calls, types, head_);
  }

  static JsonObject two_texts() { return {{kKeys[0], text_json(kTexts[0])}, {kKeys[1], text_json(kTexts[1])}}; }

  // Ids and numbers of calls become holes.
  static void dig(std::string& text) {
    for (std::string_view id : kIds) {
      for (size_t at = text.find(id); at != std::string::npos; at = text.find(id, at))
        text.replace(at, id.size(), 1, kCallId);
    }
  }

  // Two texts that are the same but for a number that is one more in the second: the number becomes a hole in both.
  // Looked for from the end, as far as they agree.
  static void dig_number(std::string& first, std::string& second) {
    size_t a = first.size(), b = second.size();
    while (a > 0 && b > 0 && first[a - 1] == second[b - 1]) --a, --b;
    if (a == 0 || b == 0 || !is_digit(first[a - 1]) || !is_digit(second[b - 1])) return;
    if (second[b - 1] != first[a - 1] + 1 || first[a - 1] > '1') return;
    const char hole = first[a - 1] == '0' ? kCallIndex : kCallCount;
    first[a - 1] = second[b - 1] = hole;
  }
  // The same, from the front.
  static void dig_number_front(std::string& first, std::string& second) {
    size_t at = 0;
    while (at < first.size() && at < second.size() && first[at] == second[at]) ++at;
    if (at >= first.size() || at >= second.size() || !is_digit(first[at]) || second[at] != first[at] + 1) return;
    if (first[at] > '1') return;
    first[at] = second[at] = first[at] == '0' ? kCallIndex : kCallCount;
  }

  // Arguments are one JSON object. `named`: ids are made of names, functions.NAME:0, and stand for them.
  bool find_json(bool named) {
    const std::string ids[] = {fmt::format("functions.{}:0", kNames[0]), fmt::format("functions.{}:1", kNames[1])};
    const std::string_view id0 = named ? std::string_view(ids[0]) : kIds[0];
    const std::string_view id1 = named ? std::string_view(ids[1]) : kIds[1];
    auto one = calls_part({{kNames[0], id0, two_texts()}});
    auto two = calls_part({{kNames[0], id0, two_texts()}, {kNames[1], id1, two_texts()}});
    if (two == one) two.reset();  // only the first is shown
    Span first, only, second;
    if (!one || !spans(*one, kNames[0], 0, only)) return false;
    CallFormat& f = format_;
    f.begin = one->substr(0, only.name);
    f.middle = one->substr(only.name + kNames[0].size(), only.arguments - only.name - kNames[0].size());
    f.end = one->substr(only.arguments_end);
    f.style = CallFormat::Style::json;
    f.named_ids = named;
    f.single = !two;
    if (!two) {
      for (std::string* text : {&f.begin, &f.middle, &f.end}) dig(*text);
      return !f.begin.empty();
    }
    if (!spans(*two, kNames[0], 0, first) || !spans(*two, kNames[1], first.arguments_end, second)) return false;
    f.between = two->substr(first.arguments_end, second.name - first.arguments_end);
    std::string other = two->substr(second.name + kNames[1].size(), second.arguments - second.name - kNames[1].size());
    for (std::string* text : {&f.begin, &f.middle, &f.end, &f.between, &other}) dig(*text);
    dig_number_front(f.middle, other);
    dig_number(f.begin, f.between);
    if (f.begin.empty() && !find_lead()) return false;
    if (other != f.middle || two->substr(second.arguments_end).find(kNames[0]) != std::string::npos) return false;
    std::string last = two->substr(second.arguments_end);
    dig(last);
    if (last != f.end) return false;
    return (f.begin + f.middle).find(kNames[1]) == std::string::npos;
  }

  // Nothing stands before a call that does not stand before everything that is said: what comes between two calls tells
  // how much of that begins one, and the end of the prompt how much of it the model does not write in front of the
  // first.
  bool find_lead() {
    CallFormat& f = format_;
    prompt_ = probe_.generation_prompt();
    const std::string begin = common_end(head_, f.between);
    if (prompt_.empty() || !head_.starts_with(prompt_) || begin.size() <= head_.size() - prompt_.size()) return false;
    f.lead = begin.substr(0, begin.size() - (head_.size() - prompt_.size()));
    f.begin = begin;
    f.content_begin = f.lead + said_.substr(prompt_.size(), said_.find(kSaid) - prompt_.size());
    return f.content_begin.size() > f.lead.size();
  }

  struct Span {
    size_t name = 0, arguments = 0, arguments_end = 0;
  };
  // Name, then the arguments as a JSON object, in a text.
  static bool spans(std::string_view text, std::string_view name, size_t from, Span& out) {
    const auto at = place(text, name, from);
    if (!at) return false;
    out.name = *at;
    const auto key = place(text, kKeys[0], *at);
    if (!key || text.find(name, *at + 1) < *key) return false;  // a name that comes twice is none of ours
    const size_t brace = text.rfind('{', *key);
    if (brace == std::string_view::npos || brace < *at) return false;
    for (size_t end = text.find('}', brace); end != std::string_view::npos; end = text.find('}', end + 1)) {
      const std::string_view inside = text.substr(brace, end + 1 - brace);
      auto parsed = parse_json(inside);
      if (!parsed.ok()) continue;
      if (*parsed != Json(two_texts())) return false;
      out.arguments = brace;
      out.arguments_end = end + 1;
      return true;
    }
    return false;
  }

  // Every argument stands in tags of its own.
  bool find_tags() {
    auto one = calls_part({{kNames[0], kIds[0], two_texts()}});
    auto two = calls_part({{kNames[0], kIds[0], two_texts()}, {kNames[1], kIds[1], two_texts()}});
    if (!one || !two) return false;
    CallFormat& f = format_;
    std::vector<std::string> parts, pairs;
    names_ = 1;
    while (!cut(*one, words({kNames[0], kKeys[0], kTexts[0], kKeys[1], kTexts[1]}), parts))
      if (++names_ > 2) return false;
    if (!cut(*two,
             words({kNames[0], kKeys[0], kTexts[0], kKeys[1], kTexts[1], kNames[1], kKeys[0], kTexts[0], kKeys[1],
                    kTexts[1]}),
             pairs))
      return false;
    const size_t more = names_ - 1;
    f.begin = parts[0];
    f.twice = more > 0 ? parts[1] : "";
    f.open = parts[1 + more];
    f.equals[CallFormat::kText] = parts[2 + more];
    f.next = parts[3 + more];
    f.end = parts[5 + more];
    f.between = pairs[5 + more];
    std::string open = pairs[6 + 2 * more];
    for (std::string* text : {&f.begin, &f.open, &f.end, &f.between, &open}) dig(*text);
    dig_number(f.begin, f.between);
    dig_number_front(f.open, open);
    if (f.begin.empty() && !find_lead()) return false;
    if (parts[2 + more] != parts[4 + more] || open != f.open || pairs[10 + 2 * more] != parts[5 + more] ||
        pairs[6 + more] != (more > 0 ? f.twice : pairs[6]) || f.next.empty())
      return false;
    f.style = CallFormat::Style::tags;
    find_quotes();
    return find_types() && find_bare();
  }

  // Texts may stand in quotes that a number has not: what follows any value then begins with the closing one.
  void find_quotes() {
    CallFormat& f = format_;
    const JsonObject arguments = {{kKeys[0], text_json(kTexts[0])}, {kKeys[1], 48151}};
    const auto text = calls_part({{kNames[0], kIds[0], arguments}}, {"string", "integer"});
    std::vector<std::string> parts;
    if (!text || !cut(*text, words({kNames[0], kKeys[0], kTexts[0], kKeys[1], "48151"}), parts)) return;
    const std::string &before = parts[3 + names_], &equals = f.equals[CallFormat::kText];
    std::string after = parts[4 + names_];
    dig(after);
    if (before.empty() || before.size() >= equals.size() || after.size() >= f.end.size()) return;
    if (!equals.starts_with(before) || !f.end.ends_with(after)) return;
    const std::string close = f.end.substr(0, f.end.size() - after.size());
    if (!f.next.starts_with(close) || f.next.size() == close.size() || !f.between.starts_with(close)) return;
    f.quote_open = equals.substr(before.size());
    f.quote = close;
    for (std::string* one : {&f.next, &f.between, &f.end}) one->erase(0, close.size());
  }

  // The same words, names as often as they stand.
  std::vector<std::string_view> words(std::initializer_list<std::string_view> once) const {
    std::vector<std::string_view> out;
    for (std::string_view word : once) {
      const bool name = word == kNames[0] || word == kNames[1];
      out.insert(out.end(), name ? names_ : 1, word);
    }
    return out;
  }

  // Texts around the words, which come in this order, each once.
  static bool cut(std::string_view text, const std::vector<std::string_view>& words, std::vector<std::string>& out) {
    size_t from = 0;
    out.clear();
    for (std::string_view word : words) {
      const auto at = place(text, word, from);
      if (!at) return false;
      out.emplace_back(text.substr(from, *at - from));
      from = *at + word.size();
    }
    out.emplace_back(text.substr(from));
    for (const std::string& part : out) {
      for (std::string_view word : words)
        if (part.find(word) != std::string::npos) return false;
    }
    return true;
  }

  // What stands before values that are no texts. Some templates write them as Python does, True or {'a': 1}: they have
  // no marks for kinds of values, and what stands before a text stands before all.
  bool find_types() {
    const std::pair<std::string_view, Json> values[] = {{"string", "x"},
                                                        {"integer", 48151},
                                                        {"boolean", true},
                                                        {"object", JsonObject{{"inner", 62342}}},
                                                        {"array", JsonArray{71623, 71624}},
                                                        {"null", nullptr}};
    for (size_t type = CallFormat::kNumeric; type < CallFormat::kTypes; ++type) {
      const JsonObject arguments = {{kKeys[0], text_json(kTexts[0])}, {kKeys[1], values[type].second}};
      auto text = calls_part({{kNames[0], kIds[0], arguments}}, {"string", values[type].first});
      const auto key = text ? place(*text, kKeys[1], 0) : std::nullopt;
      format_.equals[type] = format_.equals[type == CallFormat::kNumeric ? CallFormat::kText : CallFormat::kNumeric];
      bool found = false;
      if (key && text->ends_with(format_.end)) {
        const size_t from = *key + kKeys[1].size(), to = text->size() - format_.end.size();
        found = from < to &&
                value_after(std::string_view(*text).substr(from, to - from), values[type].second, format_.equals[type]);
      }
      if (!found && type == CallFormat::kNumeric) return false;
    }
    const JsonObject odd = {{kKeys[0], text_json(kTexts[0])}, {kKeys[1], text_json("<odd>\n")}};
    const auto text = calls_part({{kNames[0], kIds[0], odd}});
    format_.cdata = text && text->find("<![CDATA[<odd>\n]]>") != std::string::npos;
    return true;
  }
  // The beginning of a text that ends with a value as JSON.
  static bool value_after(std::string_view text, const Json& value, std::string& before) {
    for (size_t at = 0; at < text.size(); ++at) {
      if (trimmed(text.substr(at, 1)).empty()) continue;
      auto parsed = parse_json(text.substr(at));
      if (!parsed.ok() || *parsed != value) continue;
      before = text.substr(0, at);
      return true;
    }
    return false;
  }

  // Calls without arguments.
  bool find_bare() {
    auto one = calls_part({{kNames[0], kIds[0], {}}});
    auto two = calls_part({{kNames[0], kIds[0], {}}, {kNames[1], kIds[1], {}}});
    std::vector<std::string> parts;
    if (!one || !two || !cut(*one, words({kNames[0]}), parts)) return false;
    format_.bare_end = parts[names_];
    if (!cut(*two, words({kNames[0], kNames[1]}), parts)) return false;
    format_.bare_between = parts[names_];
    std::string last = parts[2 * names_];
    for (std::string* text : {&format_.bare_end, &format_.bare_between, &last}) dig(*text);
    const std::string before = format_.bare_end;
    dig_number_front(format_.bare_end, last);
    for (size_t i = 0; i < before.size() && i < format_.bare_between.size(); ++i) {
      if (before[i] != format_.bare_end[i] && format_.bare_between[i] == before[i])
        format_.bare_between[i] = format_.bare_end[i];
    }
    return true;
  }

  // What is said may come after the calls: then what stands between the two ends them, and no more.
  void shorten_call_end() {
    CallFormat& f = format_;
    JsonObject message = calling({{kNames[0], kIds[0], two_texts()}});
    message["content"] = text_json(kSaid);
    const auto text = turn(std::move(message));
    const auto last = text ? place(*text, kTexts[1], 0) : std::nullopt;
    const auto said = last ? place(*text, kSaid, *last) : std::nullopt;
    if (!said || f.style != CallFormat::Style::tags) return;
    const size_t from = *last + kTexts[1].size();
    const std::string_view between = std::string_view(*text).substr(from, *said - from);
    const std::string whole = f.quote + f.end;
    if (between.size() <= f.quote.size() || between.size() >= whole.size() || !whole.starts_with(between)) return;
    const std::string rest = whole.substr(between.size());
    f.end.resize(f.end.size() - rest.size());
    if (f.bare_end.ends_with(rest)) f.bare_end.resize(f.bare_end.size() - rest.size());
  }

  // The shortest beginning, mark by mark, that a turn which calls nothing does not go on with after what it says.
  void find_trigger() {
    const std::string_view begin = trimmed(format_.begin);
    const std::string_view tail = trimmed(std::string_view(said_).substr(said_.find(kSaid) + kSaid.size()));
    size_t end = 0;
    const char close = begin.starts_with('<') ? '>' : begin.starts_with('[') ? ']' : '\0';
    while (close != '\0' && end < begin.size() && tail.starts_with(begin.substr(0, end))) {
      const size_t next = begin.find(close, end);
      if (next == std::string_view::npos) break;
      end = next + 1;
    }
    const bool found = end > 0 && !tail.starts_with(begin.substr(0, end));
    const size_t hole = begin.find_first_of("\x01\x02\x03");
    format_.trigger = begin.substr(0, std::min(found ? end : begin.size(), hole));
  }

  // A mark such as <|this|> that ends at a place of a text; empty: there is none.
  static std::string_view mark_before(std::string_view text) {
    const size_t open = text.ends_with("|>") ? text.rfind("<|") : std::string_view::npos;
    return open == std::string_view::npos || text.size() - open > 64 ? std::string_view() : text.substr(open);
  }

  // Messages whose heads name a channel: <|start|>assistant<|channel|>final<|message|>. A template shows them in one
  // order, and models write the head of a call in another; the reader takes both.
  bool find_channels() {
    CallFormat f;
    const std::string_view head = std::string_view(said_).substr(0, said_.find(kSaid));
    f.message = mark_before(head);
    const std::string_view named = head.substr(0, head.size() - f.message.size());
    const size_t mark = named.rfind("|>");
    if (f.message.empty() || mark == std::string_view::npos || named.size() - mark <= 2) return false;
    f.channel = mark_before(named.substr(0, mark + 2));
    const size_t role = head.rfind(f.channel), start = head.find("<|");
    if (f.channel.empty() || start == std::string_view::npos || start >= role) return false;
    f.start = head.substr(start, role - start);
    f.content_begin = head.substr(role);
    const auto call = turn(calling({{kNames[0], kIds[0], two_texts()}}));
    const auto name = call ? place(*call, kNames[0], 0) : std::nullopt;
    const size_t to = name ? call->rfind("to=", *name) : std::string::npos;
    const size_t spoken = name ? call->find(f.channel, *name) : std::string::npos;
    if (to == std::string::npos || spoken == std::string::npos) return false;
    const std::string_view rest = std::string_view(*call).substr(spoken + f.channel.size());
    const std::string_view word = rest.substr(0, rest.find_first_of(" <"));
    f.begin = fmt::format("{}{} {}", f.channel, word, std::string_view(*call).substr(to, *name - to));
    f.middle = fmt::format(" <|constrain|>json{}", f.message);
    f.trigger = f.begin;
    f.single = true;
    f.style = CallFormat::Style::channels;
    for (const char* field : {"reasoning_content", "reasoning", "thinking"}) {
      const auto text =
          turn(JsonObject{{"role", "assistant"}, {"content", text_json(kSaid)}, {field, text_json(kThought)}});
      const auto thought = text ? place(*text, kThought, 0) : std::nullopt;
      const size_t from = thought ? text->substr(0, *thought).rfind(f.channel) : std::string::npos;
      if (from == std::string::npos) continue;
      f.think_field = field;
      f.think_begin = text->substr(from, *thought - from);
      f.think_channel =
          f.think_begin.substr(f.channel.size(), f.think_begin.size() - f.channel.size() - f.message.size());
      const std::string_view after = std::string_view(*text).substr(*thought + kThought.size());
      const size_t close = after.find("|>");
      if (!after.starts_with("<|") || close == std::string_view::npos) continue;
      f.stops.emplace_back(after.substr(0, close + 2));
      f.think_end = f.stops.back() + f.start;
      break;
    }
    if (!f.thinks()) return false;
    f.stops.insert(f.stops.end(), {"<|call|>", "<|return|>"});
    format_ = std::move(f);
    return true;
  }

  void find_thinking() {
    if (!format_.lead.empty()) return find_led_thinking();
    for (const char* field : {"reasoning_content", "reasoning", "thinking"}) {
      auto text = turn(JsonObject{{"role", "assistant"}, {"content", text_json(kSaid)}, {field, text_json(kThought)}});
      if (!text) continue;
      const auto thought = place(*text, kThought, 0);
      const auto said = thought ? place(*text, kSaid, *thought) : std::nullopt;
      if (!said) continue;
      size_t same = 0;  // what every turn begins with
      while (same < *thought && same < said_.size() && said_[same] == (*text)[same]) ++same;
      same = before_mark(*text, same);
      format_.think_begin = trimmed(std::string_view(*text).substr(same, *thought - same));
      format_.think_end =
          trimmed(std::string_view(*text).substr(*thought + kThought.size(), *said - *thought - kThought.size()));
      // A turn without reasoning may have an empty section, of which the beginning then is the same.
      if (format_.think_begin.empty() || format_.think_end.empty()) complete_marks(*text, *thought);
      shorten_end(std::string_view(*text).substr(*thought + kThought.size(), *said - *thought - kThought.size()),
                  field);
      format_.think_field = field;
      if (!format_.think_end.empty()) return;
    }
    if (format_.known()) find_thinking_before_calls();
  }
  // Of messages that begin alike: whose it is stands behind what the prompt ends with.
  void find_led_thinking() {
    CallFormat& f = format_;
    for (const char* field : {"reasoning_content", "reasoning", "thinking"}) {
      auto text = turn(JsonObject{{"role", "assistant"}, {"content", text_json(kSaid)}, {field, text_json(kThought)}});
      const auto thought = text && text->starts_with(prompt_) ? place(*text, kThought, 0) : std::nullopt;
      const auto said = thought ? place(*text, kSaid, *thought) : std::nullopt;
      if (!said) continue;
      const size_t after = *thought + kThought.size();
      std::string_view between = std::string_view(*text).substr(after, *said - after);
      if (!between.ends_with(f.content_begin)) continue;
      between.remove_suffix(f.content_begin.size());
      if (trimmed(between).empty()) continue;
      f.think_begin = f.lead + text->substr(prompt_.size(), *thought - prompt_.size());
      f.think_end = trimmed(between);
      f.think_field = field;
      return;
    }
  }
  // Some templates show what was thought before calls only.
  void find_thinking_before_calls() {
    const auto plain = turn(calling({{kNames[0], kIds[0], two_texts()}}));
    for (const char* field : {"reasoning_content", "reasoning", "thinking"}) {
      JsonObject message = calling({{kNames[0], kIds[0], two_texts()}});
      message[field] = text_json(kThought);
      const auto text = turn(std::move(message));
      const auto thought = text && plain ? place(*text, kThought, 0) : std::nullopt;
      const auto call = thought ? place(*text, trimmed(format_.begin), *thought) : std::nullopt;
      if (!call) continue;
      size_t same = 0;
      while (same < *thought && same < plain->size() && (*plain)[same] == (*text)[same]) ++same;
      same = before_mark(*text, same);
      format_.think_begin = trimmed(std::string_view(*text).substr(same, *thought - same));
      const size_t after = *thought + kThought.size();
      format_.think_end = trimmed(std::string_view(*text).substr(after, *call - after));
      format_.think_field = field;
      if (!format_.think_end.empty()) return;
    }
  }
  // What stands between reasoning and content may have a mark of content in it, which a call after reasoning has not.
  void shorten_end(std::string_view between, const char* field) {
    JsonObject message = calling({{kNames[0], kIds[0], two_texts()}});
    message[field] = text_json(kThought);
    const auto text = turn(std::move(message));
    const auto thought = text ? place(*text, kThought, 0) : std::nullopt;
    if (!thought) return;
    const std::string_view after = std::string_view(*text).substr(*thought + kThought.size());
    size_t same = 0;
    while (same < between.size() && same < after.size() && between[same] == after[same]) ++same;
    if (same == between.size()) return;
    const size_t mark = before_mark(between, same);
    if (mark == same && between[same] != '<') return;
    if (const std::string_view end = trimmed(between.substr(0, mark)); !end.empty()) format_.think_end = end;
  }
  // "<think>" for "</think>", "<|open|>" for "<|close|>", where the turn without reasoning has it too: as much of it as
  // stands right before the thought.
  void complete_marks(std::string_view text, size_t thought) {
    constexpr std::pair<std::string_view, std::string_view> kPairs[] = {
        {"/", ""}, {"close", "open"}, {"end", "begin"}, {"end", "start"}, {"END", "START"}, {"END", "BEGIN"}};
    const std::string_view before = trimmed(text.substr(0, thought));
    for (const auto& [close, open] : kPairs) {
      std::string opening = format_.think_end;
      const size_t at = opening.find(close);
      if (at == std::string::npos) continue;
      opening.replace(at, close.size(), open);
      while (opening.size() > 3 && !before.ends_with(opening)) opening.pop_back();
      if (opening.size() <= 3) continue;
      format_.think_begin = opening;
      return;
    }
  }

  const CallProbe probe_;
  std::string said_;    // a turn that says something and calls nothing
  std::string head_;    // what it begins with, and a turn that calls something too
  std::string prompt_;  // of that, what the prompt ends with
  size_t names_ = 1;    // how often the name of a call stands there
  CallFormat format_;
};

std::string shown(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == kCallId || c == kCallIndex || c == kCallCount) {
      out += c == kCallId ? "{id}" : c == kCallIndex ? "{index}" : "{count}";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

bool CallFormat::has_ids() const { return (begin + middle + between + end + open).find(kCallId) != std::string::npos; }

CallFormat find_calls(const ChatTemplate& chat_template) {
  auto abilities = chat_template.abilities(true);
  if (!abilities.ok()) return {};
  RenderLimits limits;
  limits.steps = 500'000;
  limits.output_bytes = size_t{1} << 20;
  limits.memory_bytes = size_t{16} << 20;
  const Probe ask = [&](const JsonObject& variables) {
    const Chat chat{.messages = variables.at("messages"),
                    .tools = variables.at("tools"),
                    .add_generation_prompt = variables.contains("add_generation_prompt"),
                    .as_is = true};
    return chat_template.render(chat, limits, LocalTime());
  };
  return CallProber(ask, *abilities).run();
}

JsonObject calls_json(const CallFormat& format) {
  JsonObject out = {{"style", format.style == CallFormat::Style::json       ? "json"
                              : format.style == CallFormat::Style::tags     ? "tags"
                              : format.style == CallFormat::Style::channels ? "channels"
                                                                            : "none"}};
  auto add = [&](std::string_view name, const std::string& text) {
    if (!text.empty()) out[name] = shown(text);
  };
  if (format.known()) {
    if (format.single) out["single"] = true;
    add("trigger", format.trigger);
    add("lead", format.lead);
    add("begin", format.begin);
    add("twice", format.twice);
    add("middle", format.middle);
    add("open", format.open);
    add("equals", format.equals[CallFormat::kText]);
    if (format.equals[CallFormat::kNumeric] != format.equals[CallFormat::kText])
      add("equals_other", format.equals[CallFormat::kNumeric]);
    add("text_open", format.quote_open);
    add("text_close", format.quote);
    add("next", format.next);
    add("between", format.between);
    add("end", format.end);
    add("bare_between", format.bare_between);
    add("bare_end", format.bare_end);
  }
  add("content_begin", format.content_begin);
  add("think_begin", format.think_begin);
  add("think_end", format.think_end);
  return out;
}

}  // namespace millrace
