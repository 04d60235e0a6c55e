#include "session/calls.h"

#if MILLRACE_SESSION_TEXT
#include <algorithm>
#include <map>

namespace millrace {
namespace {

Json text_json(std::string_view text) { return boost::json::string(text.data(), text.size()); }

// Control tokens by their text, the longest first at each place.
class Controls {
 public:
  Controls(const Tokenizer& tokenizer, std::span<const Token> ends) : tokenizer_(tokenizer), ends_(ends) {
    for (Token token = 0; token < tokenizer.size(); ++token) {
      const std::string_view text = tokenizer.token_text(token);
      if (!tokenizer.is_special(token) || text.empty()) continue;
      by_text_.emplace(text, token);
      longest_ = std::max(longest_, text.size());
    }
  }

  // `to_end`: what comes after a token that ends the answer is left out, and so is the token.
  std::string tied(std::string_view text, bool to_end = false) const {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const auto [token, length] = at_front(text.substr(at));
      if (length == 0) {
        out += text[at++];
        continue;
      }
      if (to_end && (tokenizer_.is_end(token) || std::find(ends_.begin(), ends_.end(), token) != ends_.end()))
        return out;
      out += control_bytes(token);
      at += length;
    }
    return out;
  }

 private:
  std::pair<Token, size_t> at_front(std::string_view text) const {
    for (size_t length = std::min(longest_, text.size()); length > 0; --length) {
      if (auto found = by_text_.find(text.substr(0, length)); found != by_text_.end()) return {found->second, length};
    }
    return {-1, 0};
  }

  const Tokenizer& tokenizer_;
  std::span<const Token> ends_;
  std::map<std::string, Token, std::less<>> by_text_;
  size_t longest_ = 0;
};

// As the grammar's description has texts: pieces.
JsonArray pieces(std::string_view text) {
  JsonArray out;
  std::string plain;
  const auto flush = [&] {
    if (!plain.empty()) out.emplace_back(boost::json::string(plain));
    plain.clear();
  };
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\xFE' && at + 4 < text.size()) {
      flush();
      int64_t token = 0;
      for (size_t i = 1; i <= 4; ++i) token = token << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3F);
      out.push_back(JsonObject{{"token", token}});
      at += 4;
    } else if (text[at] == kCallId || text[at] == kCallIndex || text[at] == kCallCount) {
      flush();
      out.push_back(JsonObject{{"hole", text[at] == kCallId ? "id" : "number"}});
    } else {
      plain += text[at];
    }
  }
  flush();
  return out;
}

}  // namespace

std::string call_bytes(const Tokenizer& tokenizer, Token token) {
  return tokenizer.is_special(token) ? control_bytes(token) : tokenizer.token_bytes(token);
}

CallFormat tie_calls(CallFormat format, const Tokenizer& tokenizer, std::span<const Token> ends) {
  const Controls controls(tokenizer, ends);
  for (std::string* text :
       {&format.begin, &format.middle, &format.between, &format.open, &format.next, &format.bare_between,
        &format.trigger, &format.think_begin, &format.think_end, &format.quote_open, &format.quote, &format.start,
        &format.channel, &format.message, &format.content_begin, &format.lead, &format.twice}) {
    *text = controls.tied(*text);
  }
  for (std::string& text : format.equals) text = controls.tied(text);
  for (std::string& text : format.stops) text = controls.tied(text);
  for (std::string* text : {&format.end, &format.bare_end}) *text = controls.tied(*text, true);
  return format;
}

GrammarSource calls_source(const CallFormat& format, const ToolUse& use, Thinking thinking,
                           const std::optional<GrammarSource>& content) {
  const size_t mark = format.begin.find(format.trigger);
  JsonArray equals, tools;
  for (const std::string& text : format.equals) equals.push_back(pieces(text));
  for (const Tool& tool : use.tools) {
    JsonObject one = {{"name", boost::json::string(tool.name)}, {"strict", tool.strict}};
    if (!tool.parameters.is_null()) one["parameters"] = tool.parameters;
    tools.push_back(std::move(one));
  }
  JsonObject description = {{"style", format.style == CallFormat::Style::tags ? "tags" : "json"},
                            {"free", !use.required},
                            {"single", use.single || format.single},
                            {"space", pieces(std::string_view(format.begin).substr(0, mark))},
                            {"trigger", pieces(format.trigger)},
                            {"begin", pieces(std::string_view(format.begin).substr(mark + format.trigger.size()))},
                            {"middle", pieces(format.middle)},
                            {"between", pieces(format.between)},
                            {"end", pieces(format.end)},
                            {"open", pieces(format.open)},
                            {"next", pieces(format.next)},
                            {"equals", std::move(equals)},
                            {"twice", pieces(format.twice)},
                            {"quote", pieces(format.quote)},
                            {"content_begin", pieces(format.content_begin)},
                            {"bare_between", pieces(format.bare_between)},
                            {"bare_end", pieces(format.bare_end)},
                            {"tools", std::move(tools)}};
  const auto led = [&](std::string_view text) { return pieces(text.substr(format.lead.size())); };
  if (!format.lead.empty()) {
    description["first"] = led(format.begin);
    description["first_said"] = led(format.content_begin);
  }
  if (thinking != Thinking::closed && format.thinks()) {
    description["think_end"] = pieces(format.think_end);
    if (thinking == Thinking::may) description["think_begin"] = led(format.think_begin);
  }
  if (content) {
    const auto schema = content->kind == GrammarKind::json_schema
                            ? parse_json(content->text, {.max_bytes = size_t{8} << 20, .max_depth = 72})
                            : Result<Json>(JsonObject{{"type", "object"}});
    // What is no schema is refused where it is compiled.
    description["content"] = schema.ok() ? *schema : text_json(content->text);
    description["compact"] = content->compact;
  }
  return {.kind = GrammarKind::calls, .text = to_text(description)};
}

}  // namespace millrace
#endif
