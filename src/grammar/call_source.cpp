#include "grammar/call_source.h"

#include "grammar/grammar.h"
#include "grammar/regex.h"

namespace millrace::grammar {
namespace {

constexpr std::string_view kTypeNames[] = {"string", "number", "boolean", "object", "array", "null"};

ExprId some_bytes(Exprs& exprs, int least) {
  ByteSet all;
  all.add(0, 0xFF);
  return exprs.repeat(exprs.bytes(all), least, Exprs::kMany);
}

bool flag(const Json& object, std::string_view name) {
  const Json* value = find(object, name);
  return value != nullptr && value->is_bool() && value->get_bool();
}

// The arguments of a call are an object, whatever else the schema says; where it declares properties and is silent
// about others, there are no others: a tool does not know what to do with them.
Json object_schema(const Json* parameters) {
  if (parameters == nullptr) {
    return JsonObject{{"type", "object"}, {"properties", JsonObject{}}, {"additionalProperties", false}};
  }
  const auto* object = parameters->if_object();
  if (object == nullptr) return *parameters;
  JsonObject made = {{"type", "object"}};
  for (const auto& member : *object) made[member.key()] = member.value();
  bool silent = made.contains("properties");
  for (const char* other : {"additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames",
                            "$ref", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "dependencies"})
    silent &= !made.contains(other);
  if (silent) made["additionalProperties"] = false;
  return made;
}

}  // namespace

Result<ExprId> CallSource::pieces(const Json& list, std::string_view name) {
  const auto wrong = [&] { return error(Code::invalid, "'{}' of a format of calls is a list of pieces", name); };
  if (!list.is_array()) return wrong();
  ExprId whole = Exprs::kEmpty;
  for (const Json& piece : list.get_array()) {
    const Json *token = find(piece, "token"), *hole = find(piece, "hole");
    ExprId part = Exprs::kNothing;
    if (piece.is_string()) {
      part = exprs_.literal(std::string_view(piece.get_string().data(), piece.get_string().size()));
    } else if (token != nullptr && token->is_int64()) {
      part = exprs_.literal(control_bytes(static_cast<Token>(token->get_int64())));
    } else if (hole != nullptr && hole->is_string()) {
      TRY(part, regex_expr(exprs_, hole->get_string() == "id" ? "[A-Za-z0-9]{9}" : "[0-9]{1,4}", RegexUse::terminal));
    } else {
      return wrong();
    }
    whole = exprs_.cat(whole, part);
  }
  return whole;
}

Result<ExprId> CallSource::literal(const Json& description, std::string_view name) {
  const Json* list = find(description, name);
  return list == nullptr ? Result<ExprId>(Exprs::kEmpty) : pieces(*list, name);
}

Result<void> CallSource::read_format(const Json& description) {
  const Json* style = find(description, "style");
  if (style == nullptr || !style->is_string()) return error(Code::invalid, "a format of calls has a style");
  tags_ = style->get_string() == "tags";
  free_ = flag(description, "free");
  single_ = flag(description, "single");
  TRY(space_, literal(description, "space"));
  TRY(trigger_, literal(description, "trigger"));
  TRY(begin_, literal(description, "begin"));
  TRY(middle_, literal(description, "middle"));
  TRY(between_, literal(description, "between"));
  TRY(end_, literal(description, "end"));
  TRY(open_, literal(description, "open"));
  TRY(next_, literal(description, "next"));
  TRY(bare_between_, literal(description, "bare_between"));
  TRY(bare_end_, literal(description, "bare_end"));
  TRY(quote_, literal(description, "quote"));
  TRY(said_, literal(description, "content_begin"));
  TRY(twice_, literal(description, "twice"));
  led_ = find(description, "first_said") != nullptr;
  TRY(first_, literal(description, "first"));
  TRY(first_said_, literal(description, "first_said"));
  if (const Json* equals = find(description, "equals"); equals != nullptr && equals->is_array()) {
    for (const Json& one : equals->get_array()) {
      TRY(const ExprId expr, pieces(one, "equals"));
      equals_.push_back(expr);
    }
  }
  if (tags_ && equals_.size() != std::size(kTypeNames)) {
    return error(Code::invalid, "a format of calls in tags has {} kinds of values", std::size(kTypeNames));
  }
  if (trigger_ == Exprs::kEmpty) return error(Code::invalid, "a format of calls has a trigger");
  const ExprId all = some_bytes(exprs_, 0), some = some_bytes(exprs_, 1);
  const ExprId contains = exprs_.cat({all, trigger_, all});
  untriggered_ = exprs_.negate(contains);
  triggered_ = exprs_.both({exprs_.cat(all, trigger_), exprs_.negate(exprs_.cat({all, trigger_, some}))});
  TRY_VOID(read_thinking(description));
  if (!tags_) return {};
  ExprId ends = single_ ? exprs_.alt({next_, end_}) : exprs_.alt({next_, between_, end_});
  if (quote_ != Exprs::kEmpty) {  // a text ends with it where a key, a call or the end of all follows
    TRY(const ExprId comma, regex_expr(exprs_, R"([ \n\r\t]*,[ \n\r\t]*)", RegexUse::terminal));
    TRY(const ExprId word, regex_expr(exprs_, R"([^'"=,:(){}\[\]<>\n\\]+)", RegexUse::terminal));
    TRY(const ExprId call, regex_expr(exprs_, R"(\)[ \n\r\t]*,)", RegexUse::terminal));
    const ExprId key = exprs_.cat({exprs_.alt({comma, next_}), word, equals_[1]});
    ends = exprs_.cat(quote_, exprs_.alt({key, call, between_, end_}));
  }
  const ExprId text = exprs_.repeat(any_character(exprs_), 0, Exprs::kMany);
  bare_text_ = exprs_.cat(exprs_.both({text, exprs_.negate(exprs_.cat({all, ends, all}))}), text_end(exprs_));
  return {};
}

Result<void> CallSource::read_thinking(const Json& description) {
  if (find(description, "think_end") == nullptr) return {};
  TRY(const ExprId end, literal(description, "think_end"));
  TRY(const ExprId begin, literal(description, "think_begin"));
  const ExprId all = some_bytes(exprs_, 0), some = some_bytes(exprs_, 1);
  TRY(const ExprId space, regex_expr(exprs_, "[ \\n]{0,4}", RegexUse::terminal));
  const ExprId thought = exprs_.both({exprs_.cat(all, end), exprs_.negate(exprs_.cat({all, end, some}))});
  thought_ = exprs_.cat(thought, space);
  think_ = exprs_.cat({begin, thought, space});
  thinking_ = begin == Exprs::kEmpty;
  return {};
}

Result<int32_t> CallSource::add_value(const Json& schema, bool compact) {
  Value value;
  TRY(value.schemas, Schemas::read(schema, exprs_, {}));
  value.shapes = std::make_unique<Shapes>(*value.schemas, exprs_);
  value.source = std::make_unique<JsonSource>(
      *value.shapes, JsonStyle{.space = compact ? JsonStyle::Space::none : JsonStyle::Space::some});
  TRY_VOID(value.source->check());
  values_.push_back(std::move(value));
  return static_cast<int32_t>(values_.size()) - 1;
}

// The ways to write one property's value: as a bare text if a text fits, and as JSON if anything else does.
Result<void> CallSource::read_ways(const Json& parameters, const std::string& key, Property& property) {
  JsonObject defs;
  for (const char* name : {"$defs", "definitions"}) {
    if (const Json* found = find(parameters, name)) defs[name] = *found;
  }
  if (!defs.contains("$defs")) defs["$defs"] = JsonObject{};
  defs["$defs"].get_object()["millrace:value"] = *find(*find(parameters, "properties"), key);
  if (const Json* draft = find(parameters, "$schema")) defs["$schema"] = *draft;
  defs["allOf"] = JsonArray{JsonObject{{"$ref", "#/$defs/millrace:value"}}};
  const ExprId name = exprs_.literal(key);
  for (size_t type = 0; type < std::size(kTypeNames); ++type) {
    JsonObject schema = defs;
    schema["type"] = kTypeNames[type];
    auto value = add_value(schema);
    if (!value.ok()) {
      if (value.error().message.find("no value satisfies") != std::string::npos) continue;
      return value.error();
    }
    Way way{.before = exprs_.cat(name, equals_[type])};
    if (type == 0) {
      Shapes& shapes = *values_[static_cast<size_t>(*value)].shapes;
      way.text = exprs_.both({shapes.texts_of(shapes.root()), bare_text_});
      values_.pop_back();
      if (!exprs_.live(way.text)) continue;
    } else {
      way.value = *value;
    }
    property.ways.push_back(way);
  }
  // Where text and JSON have the same mark, what begins like JSON is JSON.
  if (property.ways.size() > 1 && property.ways[0].text != Exprs::kNothing &&
      property.ways[0].before == property.ways[1].before) {
    TRY(const ExprId json, regex_expr(exprs_, "[ \\n\\r\\t]*[\\{\\[\"]", RegexUse::terminal));
    property.ways[0].text =
        exprs_.both({property.ways[0].text, exprs_.negate(exprs_.cat(json, some_bytes(exprs_, 0)))});
  }
  return {};
}

Result<void> CallSource::read_properties(const Json& parameters, Tool& tool) {
  const Json *properties = find(parameters, "properties"), *required = find(parameters, "required");
  if (properties == nullptr) return {};
  if (!properties->is_object()) return error(Code::invalid, "/properties: an object is expected");
  for (const auto& member : properties->get_object()) {
    Property property{.key = std::string(member.key())};
    if (required != nullptr && required->is_array()) {
      for (const Json& name : required->get_array()) property.required |= name == Json(member.key());
    }
    TRY_VOID(read_ways(parameters, property.key, property));
    if (property.ways.empty() && property.required) {
      return error(Code::invalid, "/properties/{}: no value satisfies it in the model's format of calls", property.key);
    }
    if (property.ways.empty()) continue;  // it never comes
    tool.properties.push_back(std::move(property));
  }
  return {};
}

Result<void> CallSource::read_tool(const Json& json, size_t index) {
  TRY(const std::string name, get_string(json, "name", ""));
  if (name.empty()) return error(Code::invalid, "/{}: a tool has a name", index);
  Tool tool{.name = name};
  const ExprId written = exprs_.literal(name);
  const ExprId named = twice_ == Exprs::kEmpty ? written : exprs_.cat({written, twice_, written});
  tool.call = exprs_.cat(named, tags_ ? Exprs::kEmpty : middle_);
  const Json parameters = object_schema(find(json, "parameters"));
  const size_t values = values_.size();
  Result<void> read;
  if (tags_) {
    read = read_properties(parameters, tool);
  } else {
    auto value = add_value(parameters);
    read = value.ok() ? Result<void>() : Result<void>(value.error());
    if (value.ok()) tool.arguments = *value;
  }
  if (!read.ok()) {
    const std::string why = fmt::format("/{}/parameters{}{}", index, read.error().message.starts_with('/') ? "" : ": ",
                                        read.error().message);
    if (flag(json, "strict") || exprs_.over()) return error(read.error().code, "{}", why);
    values_.resize(values);
    tool.properties.clear();
    if (!tags_) {
      TRY(tool.arguments, add_value(JsonObject{{"type", "object"}}));
    }
    notes_.push_back(why);
  }
  tools_.push_back(std::move(tool));
  return {};
}

Result<void> CallSource::read_tools(const Json& description) {
  const Json* tools = find(description, "tools");
  if (tools == nullptr || !tools->is_array() || tools->get_array().empty() || tools->get_array().size() > kMostTools) {
    return error(Code::invalid, "there are 1 to {} tools", kMostTools);
  }
  for (size_t i = 0; i < tools->get_array().size(); ++i) TRY_VOID(read_tool(tools->get_array()[i], i));
  return {};
}

Result<std::unique_ptr<CallSource>> CallSource::read(const Json& description, Exprs& exprs) {
  std::unique_ptr<CallSource> made(new CallSource(exprs));
  TRY_VOID(made->read_format(description));
  TRY_VOID(made->read_tools(description));
  if (const Json* content = find(description, "content")) {
    auto value = made->add_value(*content, flag(description, "compact"));
    if (!value.ok()) return within("what is said instead of calls", value.error());
    made->content_ = *value;
  }
  return made;
}

// A value's own frames, under numbers that tell whose they are.
void CallSource::add_values(int32_t value, std::vector<Frame>& out) const {
  for (Frame frame : values_[static_cast<size_t>(value)].source->start()) {
    if (frame.kind >= Frame::control) frame.kind += kJson - Frame::control + value * kJsonKinds;
    out.push_back(frame);
  }
}

int32_t CallSource::seen_id(const std::vector<bool>& seen) {
  auto [found, fresh] = seen_ids_.try_emplace(seen, static_cast<int32_t>(seen_.size()));
  if (fresh) seen_.push_back(seen);
  return found->second;
}

void CallSource::expand_keys(const Frame& frame, Sequences& out) {
  const Tool& tool = tools_[static_cast<size_t>(frame.a)];
  const std::vector<bool> seen = seen_[static_cast<size_t>(frame.b)];
  bool complete = true;
  for (size_t i = 0; i < tool.properties.size(); ++i) {
    const Property& property = tool.properties[i];
    if (seen[i]) continue;
    complete &= !property.required;
    std::vector<bool> then = seen;
    then[i] = true;
    const Frame rest{kKeys, frame.a, seen_id(then), 1};
    for (const Way& way : property.ways) {
      std::vector<Frame> sequence = {lex(exprs_.cat(frame.c == 0 ? open_ : next_, way.before))};
      if (way.value >= 0) {
        add_values(way.value, sequence);
      } else {
        sequence.push_back({Frame::lex, way.text, 1, 0});
        if (quote_ != Exprs::kEmpty) sequence.push_back(lex(quote_));
      }
      sequence.push_back(rest);
      out.push_back(std::move(sequence));
    }
  }
  if (!complete) return;
  out.push_back({lex(frame.c == 0 ? bare_end_ : end_)});
  if (!single_) out.push_back({lex(frame.c == 0 ? bare_between_ : between_), {kCall, 0, 0, 0}});
}

// `first`: what the prompt ends with is the beginning of it.
void CallSource::expand_body(Sequences& out, bool first) {
  const bool begun = led_ && first;
  const ExprId said = begun ? first_said_ : said_;
  if (free_ && content_ < 0) {
    const ExprId before = led_ ? said : Exprs::kEmpty;
    out.push_back({lex(exprs_.cat(before, untriggered_))});
    out.push_back({lex(exprs_.cat(before, triggered_)), lex(begin_), {kCall, 0, 0, 0}});
    if (!led_) return;
  } else if (free_) {
    std::vector<Frame> sequence = {lex(said)};
    add_values(content_, sequence);
    out.push_back(std::move(sequence));
  }
  const ExprId begin = begun ? first_ : exprs_.cat({exprs_.maybe(space_), trigger_, begin_});
  out.push_back({lex(begin), {kCall, 0, 0, 0}});
}

void CallSource::expand(const Frame& frame, Sequences& out) {
  if (frame.kind >= kJson) {
    const int32_t value = (frame.kind - kJson) / kJsonKinds, base = kJson + value * kJsonKinds;
    Frame inner = frame;
    inner.kind = frame.kind - base + Frame::control;
    values_[static_cast<size_t>(value)].source->expand(inner, out);
    for (auto& sequence : out) {
      for (Frame& one : sequence)
        if (one.kind >= Frame::control) one.kind += base - Frame::control;
    }
    return;
  }
  if (frame.kind == kStart) {
    if (thinking_) {
      out.push_back({lex(thought_), {kBody, 0, 0, 0}});
      return;
    }
    if (think_ != Exprs::kNothing) out.push_back({lex(think_), {kBody, 0, 0, 0}});
    expand_body(out, true);
  } else if (frame.kind == kBody) {
    expand_body(out, false);
  } else if (frame.kind == kCall) {
    for (size_t i = 0; i < tools_.size(); ++i) {
      std::vector<Frame> sequence = {lex(tools_[i].call)};
      if (tags_) {
        sequence.push_back(
            {kKeys, static_cast<int32_t>(i), seen_id(std::vector<bool>(tools_[i].properties.size())), 0});
      } else {
        add_values(tools_[i].arguments, sequence);
        sequence.push_back({kAfter, 0, 0, 0});
      }
      out.push_back(std::move(sequence));
    }
  } else if (frame.kind == kAfter) {
    out.push_back({lex(end_)});
    if (!single_) out.push_back({lex(between_), {kCall, 0, 0, 0}});
  } else {
    expand_keys(frame, out);
  }
}

Frame CallSource::receive(const Frame& frame, const std::string* captured) {
  if (frame.kind < kJson) return frame;
  const int32_t value = (frame.kind - kJson) / kJsonKinds, base = kJson + value * kJsonKinds;
  Frame inner = frame;
  inner.kind = frame.kind - base + Frame::control;
  Frame next = values_[static_cast<size_t>(value)].source->receive(inner, captured);
  if (next.kind >= Frame::control) next.kind += base - Frame::control;
  return next;
}

}  // namespace millrace::grammar
