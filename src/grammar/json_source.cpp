#include "grammar/json_source.h"

#include <algorithm>

#include "grammar/regex.h"

namespace millrace::grammar {

namespace {

constexpr int kMostIndent = 40;
constexpr size_t kMostChecked = 20'000;
constexpr size_t kMostSome = 4;

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
    case kMembers:
      return expand_object(frame, out);
    case kTaken:
      out.push_back({lex(colon_), {kValue, frame.c, 0, 0}, {kMembers, frame.a, frame.b, kNext}});
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
  if ((shape.types & kObject) != 0) {
    Shape only = shape;
    only.types = kObject;
    if (shapes_.satisfiable(only)) {
      const int32_t plan = object_plan(node, index);
      Progress begin;
      begin.seen.assign(objects_[static_cast<size_t>(plan)]->named.size(), false);
      out.push_back({lex(open_brace_), {kMembers, plan, progress_id(begin), kFirst}});
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
  if (shape.some.size() > kMostSome) {
    shapes_.fail(error(Code::unsupported, "more than {} properties must exist by denied schemas", kMostSome));
    return id;
  }
  plan.some = (1u << shape.some.size()) - 1;
  plan_named(shape, plan);
  plan_open(shape, plan);
  return id;
}

void JsonSource::plan_named(const Shape& shape, ObjectPlan& plan) {
  std::map<std::string, size_t> places;
  for (const std::string& name : shapes_.named_keys(shape)) {
    Named named;
    named.name = name;
    named.content = exprs_.literal(ended(name));
    named.value = shapes_.value_of(shape, name);
    named.possible = shapes_.satisfiable(named.value);
    named.required = std::find(shape.required.begin(), shape.required.end(), name) != shape.required.end();
    for (uint32_t bits = 1; bits <= plan.some; ++bits) {
      std::vector<Literal> more;
      bool among = true;
      for (size_t i = 0; i < shape.some.size(); ++i) {
        if ((bits >> i & 1) == 0) continue;
        among = among && exprs_.accepts(shape.some[i].names, ended(name));
        more.push_back(shape.some[i].value);
      }
      if (!among) continue;
      const NodeId value = shapes_.value_of(shape, name, std::move(more));
      if (shapes_.satisfiable(value)) named.serves.push_back({bits, value});
    }
    places[name] = plan.named.size();
    plan.named.push_back(std::move(named));
  }
  for (Named& named : plan.named) {
    std::vector<std::string> todo{named.name};
    for (size_t i = 0; i < todo.size(); ++i) {
      const std::string now = todo[i];
      for (const auto& [name, others] : shape.needs) {
        if (name != now) continue;
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
}

void JsonSource::plan_open(const Shape& shape, ObjectPlan& plan) {
  for (const Shapes::OpenKeys& keys : shapes_.open_keys(shape)) {
    for (uint32_t bits = 0; bits <= plan.some; ++bits) {
      std::vector<ExprId> names{keys.names};
      std::vector<Literal> literals = keys.literals;
      for (size_t i = 0; i < shape.some.size(); ++i) {
        if ((bits >> i & 1) == 0) continue;
        names.push_back(shape.some[i].names);
        literals.push_back(shape.some[i].value);
      }
      const ExprId both = exprs_.both(std::move(names));
      const NodeId value = shapes_.node(std::move(literals));
      if (exprs_.live(both) && shapes_.satisfiable(value)) plan.open.push_back({both, value, bits});
    }
  }
}

bool JsonSource::may_close(const ObjectPlan& plan, const Progress& now) const {
  if (now.count < plan.least || now.served != plan.some) return false;
  for (size_t i = 0; i < plan.named.size(); ++i) {
    if (plan.named[i].required && !now.seen[i]) return false;
    if (!now.seen[i]) continue;
    for (size_t other : plan.named[i].needs) {
      if (!now.seen[other]) return false;
    }
  }
  return true;
}

std::optional<int> JsonSource::least_more(const ObjectPlan& plan, const Progress& now,
                                          const std::vector<bool>& must) const {
  // least[bits]: properties that serve so much of shape.some, what must come included.
  std::vector<int> least(plan.some + 1u, -1);
  least[now.served] = 0;
  const auto add = [&](std::vector<int>& to, uint32_t from, uint32_t bits) {
    const int count = least[from] + 1;
    if (to[from | bits] < 0 || count < to[from | bits]) to[from | bits] = count;
  };
  std::vector<uint32_t> optional;
  for (const Open& open : plan.open) optional.push_back(open.serves);
  for (size_t i = 0; i < plan.named.size(); ++i) {
    if (now.seen[i] || !plan.named[i].possible) continue;
    if (!must[i]) {
      for (const auto& [bits, value] : plan.named[i].serves) optional.push_back(bits);
      continue;
    }
    std::vector<int> next(least.size(), -1);
    for (uint32_t from = 0; from <= plan.some; ++from) {
      if (least[from] < 0) continue;
      add(next, from, 0);
      for (const auto& [bits, value] : plan.named[i].serves) add(next, from, bits);
    }
    least = std::move(next);
  }
  for (uint32_t from = 0; from < plan.some; ++from) {  // adding only ever sets bits: one pass upwards is all
    if (least[from] < 0) continue;
    for (uint32_t bits : optional) {
      if ((from | bits) != from) add(least, from, bits);
    }
  }
  if (least[plan.some] < 0) return std::nullopt;
  return least[plan.some];
}

// Whether an object that has come so far can be completed.
bool JsonSource::may_be(const ObjectPlan& plan, const Progress& next) const {
  std::vector<bool> must(plan.named.size(), false);
  for (size_t i = 0; i < plan.named.size(); ++i) {
    if (!plan.named[i].required && !next.seen[i]) continue;
    must[i] = true;
    for (size_t other : plan.named[i].needs) must[other] = true;
  }
  for (size_t i = 0; i < must.size(); ++i) {
    if (!must[i] || next.seen[i]) continue;
    if (!plan.named[i].possible || (style_.in_order && static_cast<int>(i) < next.last)) return false;
  }
  const std::optional<int> more = least_more(plan, next, must);
  if (!more || (plan.most != Exprs::kMany && next.count + *more > plan.most)) return false;
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
                   {kMembers, id, progress_id(after), kNext}});
  };
  add(next, named.value);
  for (const auto& [bits, value] : named.serves) {
    if ((now.served & bits) != 0) continue;
    Progress served = next;
    served.served |= bits;
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
    if ((now.served & open.serves) != 0) continue;
    Progress next = now;
    next.count = std::min(next.count + 1, std::max(plan.least, plan.most));
    next.served |= open.serves;
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
    expand_object({kMembers, frame.a, frame.b, kKey}, keys);
    if (!keys.empty()) out.push_back({lex(comma_), {kMembers, frame.a, frame.b, kKey}});
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
        if (frame.kind == kMembers) {
          const ObjectPlan& plan = *objects_[static_cast<size_t>(frame.a)];
          for (const Named& named : plan.named) {
            if (named.possible) add(named.value);
            for (const auto& [bits, value] : named.serves) add(value);
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

}  // namespace millrace::grammar
