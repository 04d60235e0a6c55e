#include "grammar/json_source.h"

#include <algorithm>

#include "grammar/regex.h"

namespace millrace {

namespace {

constexpr int kMostIndent = 40;
constexpr size_t kMostChecked = 20'000;

ExprId space_expr(Exprs& exprs, JsonStyle style) {
  if (style.space == JsonStyle::Space::none) return Exprs::kEmpty;
  ByteSet blank;
  blank.add(' ');
  blank.add('\t');
  return exprs.alt({Exprs::kEmpty, exprs.literal(" "),
                    exprs.cat(exprs.literal("\n"), exprs.repeat(exprs.bytes(blank), 0, kMostIndent))});
}

std::string ended(const std::string& text) { return text + static_cast<char>(kTextEnd); }

}  // namespace

JsonSource::JsonSource(Shapes& shapes, JsonStyle style) : shapes_(shapes), exprs_(shapes.exprs()), style_(style) {
  const ExprId space = space_expr(exprs_, style);
  const auto around = [&](std::string_view text, bool before, bool after) {
    return exprs_.cat({before ? space : Exprs::kEmpty, exprs_.literal(text), after ? space : Exprs::kEmpty});
  };
  quote_ = exprs_.literal("\"");
  colon_ = around(":", true, true);
  comma_ = around(",", true, true);
  open_brace_ = around("{", false, true);
  close_brace_ = exprs_.literal("}");
  close_brace_after_ = around("}", true, false);
  open_bracket_ = around("[", false, true);
  close_bracket_ = exprs_.literal("]");
  close_bracket_after_ = around("]", true, false);
}

std::vector<Frame> JsonSource::start() { return {Frame{kValue, shapes_.root(), 0, 0}}; }

void JsonSource::expand(const Frame& frame, Sequences& out) {
  switch (frame.kind) {
    case kValue:
      return expand_value(frame.a, out);
    case kObject:
      return expand_object(frame, out);
    case kTaken:
      out.push_back({lex(colon_), {kValue, frame.c, 0, 0}, {kObject, frame.a, frame.b, kNext}});
      return;
    case kItems:
      return expand_items(frame, out);
    default:
      return;
  }
}

Frame JsonSource::receive(const Frame& frame, const std::string* captured) {
  Progress next = *progress_[static_cast<size_t>(frame.b)];
  if (captured != nullptr) {
    next.texts.insert(std::lower_bound(next.texts.begin(), next.texts.end(), *captured), *captured);
  } else {
    next.unknown = true;
  }
  const int32_t id = progress_id(std::move(next));
  if (frame.kind == kTakeItem) return {kItems, frame.a, id, kNext};
  const Open& open = objects_[static_cast<size_t>(frame.a)]->open[static_cast<size_t>(frame.c)];
  return {kTaken, frame.a, id, open.value};
}

int32_t JsonSource::progress_id(Progress progress) {
  auto [found, fresh] = progress_ids_.try_emplace(std::move(progress), static_cast<int32_t>(progress_.size()));
  if (fresh) progress_.push_back(&found->first);
  return found->second;
}

void JsonSource::expand_value(NodeId node, Sequences& out) {
  const size_t count = shapes_.shapes(node).size();
  for (size_t i = 0; i < count; ++i) expand_shape(node, i, out);
}

void JsonSource::expand_shape(NodeId node, size_t index, Sequences& out) {
  const Shape& shape = shapes_.shapes(node)[index];
  if (shape.values) return expand_values(*shape.values, out);
  if ((shape.types & kNull) != 0) out.push_back({lex(exprs_.literal("null"))});
  if ((shape.types & kBool) != 0) {
    std::vector<std::string> words;
    if (shape.truth[0]) words.push_back("false");
    if (shape.truth[1]) words.push_back("true");
    out.push_back({lex(exprs_.literals(std::move(words)))});
  }
  if ((shape.types & kNumber) != 0) out.push_back({lex(shapes_.numbers_of(shape))});
  if ((shape.types & kString) != 0) out.push_back({lex(quote_), text(shapes_.texts_of(shape))});
  if ((shape.types & millrace::kObject) != 0) {
    Shape only = shape;
    only.types = millrace::kObject;
    if (shapes_.satisfiable(only)) {
      const int32_t plan = object_plan(node, index);
      Progress begin;
      begin.seen.assign(objects_[static_cast<size_t>(plan)]->named.size(), false);
      begin.served.assign(objects_[static_cast<size_t>(plan)]->some, false);
      out.push_back({lex(open_brace_), {kObject, plan, progress_id(begin), kFirst}});
    }
  }
  if ((shape.types & kArray) != 0) {
    Shape only = shape;
    only.types = kArray;
    if (shapes_.satisfiable(only)) {
      const int32_t plan = item_plan(node, index);
      Progress begin;
      begin.found.assign(shape.contains.size(), 0);
      out.push_back({lex(open_bracket_), {kItems, plan, progress_id(begin), kFirst}});
    }
  }
}

void JsonSource::expand_values(const std::vector<Json>& values, Sequences& out) {
  std::vector<std::string> texts, words;
  std::vector<ExprId> others;
  for (const Json& value : values) {
    if (value.is_string()) {
      texts.push_back(ended(std::string(value.get_string())));
    } else if (value.is_null() || value.is_bool()) {
      words.push_back(value.is_null() ? "null" : value.get_bool() ? "true" : "false");
    } else if (value.is_number()) {
      if (const auto decimal = to_decimal(value)) others.push_back(equal_expr(exprs_, *decimal));
    } else {
      out.push_back({{kValue, shapes_.node({shapes_.constant(value) + 1}), 0, 0}});
    }
  }
  if (!texts.empty()) out.push_back({lex(quote_), text(exprs_.literals(std::move(texts)))});
  if (!words.empty()) others.push_back(exprs_.literals(std::move(words)));
  if (!others.empty()) out.push_back({lex(exprs_.alt(std::move(others)))});
}

int32_t JsonSource::object_plan(NodeId node, size_t index) {
  auto [found, fresh] = object_ids_.try_emplace({node, index}, static_cast<int32_t>(objects_.size()));
  if (!fresh) return found->second;
  const int32_t id = found->second;
  objects_.push_back(std::make_unique<ObjectPlan>());
  ObjectPlan& plan = *objects_.back();
  const Shape& shape = shapes_.shapes(node)[index];
  plan.shape = &shape;
  plan.least = shape.least_properties;
  plan.most = shape.most_properties;
  plan.some = shape.some.size();
  if (plan.some > 0 && plan.most != Exprs::kMany) {
    shapes_.fail(error(Code::unsupported, "maxProperties beside a property that must exist by a denied schema"));
  }
  std::map<std::string, size_t> places;
  for (const std::string& name : shapes_.named_keys(shape)) {
    Named named;
    named.name = name;
    named.content = exprs_.literal(ended(name));
    named.value = shapes_.value_of(shape, name);
    named.possible = shapes_.satisfiable(named.value);
    named.required = std::find(shape.required.begin(), shape.required.end(), name) != shape.required.end();
    for (size_t i = 0; i < shape.some.size(); ++i) {
      if (!exprs_.accepts(shape.some[i].names, ended(name))) continue;
      const NodeId value = shapes_.value_of(shape, name, {shape.some[i].value});
      if (shapes_.satisfiable(value)) named.serves.push_back({i, value});
    }
    places[name] = plan.named.size();
    plan.named.push_back(std::move(named));
  }
  for (Named& named : plan.named) {
    std::vector<std::string> todo{named.name};
    for (size_t i = 0; i < todo.size(); ++i) {
      for (const auto& [name, others] : shape.needs) {
        if (name != todo[i]) continue;
        for (const std::string& other : others) {
          if (std::find(todo.begin(), todo.end(), other) == todo.end()) todo.push_back(other);
        }
      }
    }
    for (size_t i = 1; i < todo.size(); ++i) named.needs.push_back(places[todo[i]]);
  }
  for (Named& named : plan.named) {
    for (size_t other : named.needs) named.possible = named.possible && plan.named[other].possible;
  }
  for (const Shapes::OpenKeys& keys : shapes_.open_keys(shape)) {
    plan.open.push_back({keys.names, shapes_.node(keys.literals), -1});
    for (size_t i = 0; i < shape.some.size(); ++i) {
      const ExprId names = exprs_.both({keys.names, shape.some[i].names});
      std::vector<Literal> literals = keys.literals;
      literals.push_back(shape.some[i].value);
      const NodeId value = shapes_.node(std::move(literals));
      if (exprs_.live(names) && shapes_.satisfiable(value)) plan.open.push_back({names, value, static_cast<int>(i)});
    }
  }
  return id;
}

bool JsonSource::may_close(const ObjectPlan& plan, const Progress& now) const {
  if (now.count < plan.least || std::find(now.served.begin(), now.served.end(), false) != now.served.end())
    return false;
  for (size_t i = 0; i < plan.named.size(); ++i) {
    if (plan.named[i].required && !now.seen[i]) return false;
    if (!now.seen[i]) continue;
    for (size_t other : plan.named[i].needs) {
      if (!now.seen[other]) return false;
    }
  }
  return true;
}

// Whether an object that has come so far can be completed.
bool JsonSource::may_be(const ObjectPlan& plan, const Progress& next) const {
  std::vector<bool> must(plan.named.size(), false);
  for (size_t i = 0; i < plan.named.size(); ++i) {
    if (!plan.named[i].required && !next.seen[i]) continue;
    must[i] = true;
    for (size_t other : plan.named[i].needs) must[other] = true;
  }
  int missing = 0;
  for (size_t i = 0; i < must.size(); ++i) {
    if (!must[i] || next.seen[i]) continue;
    if (!plan.named[i].possible || (style_.in_order && static_cast<int>(i) < next.last)) return false;
    ++missing;
  }
  if (plan.most != Exprs::kMany && next.count + missing > plan.most) return false;
  for (size_t s = 0; s < next.served.size(); ++s) {
    if (next.served[s]) continue;
    bool can = std::any_of(plan.open.begin(), plan.open.end(),
                           [&](const Open& open) { return open.serves == static_cast<int>(s); });
    for (size_t i = 0; i < plan.named.size() && !can; ++i) {
      if (next.seen[i]) continue;
      for (const auto& [which, value] : plan.named[i].serves) can |= which == s;
    }
    if (!can) return false;
  }
  if (!plan.open.empty() || next.count >= plan.least) return true;
  int left = 0;
  for (size_t i = 0; i < plan.named.size(); ++i) left += !next.seen[i] && plan.named[i].possible ? 1 : 0;
  return next.count + left >= plan.least;
}

void JsonSource::add_named(const ObjectPlan& plan, int32_t id, const Progress& now, size_t index, Sequences& out) {
  const Named& named = plan.named[index];
  if (now.seen[index] || !named.possible) return;
  if (style_.in_order && static_cast<int>(index) < now.last) return;
  Progress next = now;
  next.seen[index] = true;
  next.last = style_.in_order ? static_cast<int>(index) : -1;
  next.count = std::min(next.count + 1, std::max(plan.least, plan.most));  // as far as a bound looks
  const auto add = [&](const Progress& after, NodeId value) {
    if (!may_be(plan, after)) return;
    out.push_back({lex(quote_),
                   text(named.content),
                   lex(colon_),
                   {kValue, value, 0, 0},
                   {kObject, id, progress_id(after), kNext}});
  };
  add(next, named.value);
  for (const auto& [which, value] : named.serves) {
    if (now.served[which]) continue;
    Progress served = next;
    served.served[which] = true;
    add(served, value);
  }
}

void JsonSource::add_open(const ObjectPlan& plan, int32_t id, const Progress& now, int32_t, Sequences& out) {
  ExprId again = Exprs::kNothing;
  if (!now.texts.empty()) {
    std::vector<std::string> texts;
    for (const std::string& name : now.texts) texts.push_back(ended(name));
    again = exprs_.literals(std::move(texts));
  }
  for (size_t i = 0; i < plan.open.size(); ++i) {
    const Open& open = plan.open[i];
    if (open.serves >= 0 && now.served[static_cast<size_t>(open.serves)]) continue;
    Progress next = now;
    next.count = std::min(next.count + 1, std::max(plan.least, plan.most));
    if (open.serves >= 0) next.served[static_cast<size_t>(open.serves)] = true;
    if (!may_be(plan, next)) continue;
    ExprId names = open.names;
    if (again != Exprs::kNothing) names = exprs_.both({names, exprs_.negate(again)});
    if (!exprs_.live(names)) continue;
    const int32_t capture = now.unknown ? Frame::kMuddled : Frame::kCapture;
    out.push_back({lex(quote_), text(names, capture), {kTakeKey, id, progress_id(next), static_cast<int32_t>(i)}});
  }
}

void JsonSource::expand_object(const Frame& frame, Sequences& out) {
  const ObjectPlan& plan = *objects_[static_cast<size_t>(frame.a)];
  const Progress& now = *progress_[static_cast<size_t>(frame.b)];
  if (frame.c != kKey && may_close(plan, now)) {
    out.push_back({lex(frame.c == kFirst ? close_brace_ : close_brace_after_)});
  }
  if (frame.c == kNext) {
    Sequences keys;
    expand_object({kObject, frame.a, frame.b, kKey}, keys);
    if (!keys.empty()) out.push_back({lex(comma_), {kObject, frame.a, frame.b, kKey}});
    return;
  }
  if (plan.most != Exprs::kMany && now.count >= plan.most) return;
  for (size_t i = 0; i < plan.named.size(); ++i) add_named(plan, frame.a, now, i, out);
  add_open(plan, frame.a, now, frame.b, out);
}

Result<void> JsonSource::check() {
  std::vector<NodeId> todo{shapes_.root()};
  std::map<NodeId, bool> seen{{todo[0], true}};
  const auto add = [&](NodeId node) {
    if (seen.try_emplace(node, true).second) todo.push_back(node);
  };
  while (!todo.empty() && seen.size() < kMostChecked && !shapes_.error()) {
    const NodeId node = todo.back();
    todo.pop_back();
    Sequences found;
    expand_value(node, found);
    for (const std::vector<Frame>& sequence : found) {
      for (const Frame& frame : sequence) {
        if (frame.kind == kValue) add(frame.a);
        if (frame.kind == kObject) {
          const ObjectPlan& plan = *objects_[static_cast<size_t>(frame.a)];
          for (const Named& named : plan.named) {
            if (named.possible) add(named.value);
            for (const auto& [which, value] : named.serves) add(value);
          }
          for (const Open& open : plan.open) add(open.value);
        }
        if (frame.kind != kItems) continue;
        Sequences items;
        const ItemPlan& plan = *items_[static_cast<size_t>(frame.a)];
        for (int i = 0; i <= plan.prefix; ++i) {
          Progress at = *progress_[static_cast<size_t>(frame.b)];
          at.count = i;
          if (plan.most == Exprs::kMany || i < plan.most) add_items(plan, frame.a, at, items);
        }
        for (const auto& item : items) {
          for (const Frame& part : item) {
            if (part.kind == kValue) add(part.a);
          }
        }
      }
    }
    if (exprs_.over()) return error(Code::invalid, "the schema takes more work to compile than is allowed");
  }
  if (shapes_.error()) return *shapes_.error();
  if (!shapes_.satisfiable(shapes_.root())) {
    return error(Code::invalid, "no value satisfies the schema");
  }
  if (shapes_.error()) return *shapes_.error();
  return {};
}

}  // namespace millrace
