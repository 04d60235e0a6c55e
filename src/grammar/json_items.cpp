// Arrays, as JsonSource sees them.
#include <algorithm>

#include "grammar/json_source.h"
#include "grammar/regex.h"

namespace millrace::grammar {

namespace {

constexpr size_t kMostContains = 4;

}  // namespace

int32_t JsonSource::item_plan(NodeId node, size_t index) {
  auto [found, fresh] = item_ids_.try_emplace({node, index}, static_cast<int32_t>(items_.size()));
  if (!fresh) return found->second;
  items_.push_back(std::make_unique<ItemPlan>());
  ItemPlan& plan = *items_.back();
  const Shape& shape = shapes_.shapes(node)[index];
  plan.shape = &shape;
  plan.least = shape.least_items;
  plan.most = shape.most_items;
  for (const Shape::Items& items : shape.items) {
    plan.prefix = std::max(plan.prefix, static_cast<int>(items.prefix.size()));
  }
  for (const Shape::Contains& contains : shape.contains) plan.prefix = std::max(plan.prefix, contains.from);
  // The first place that nothing fits ends the array.
  for (int i = 0; i <= plan.prefix && (plan.most == Exprs::kMany || i < plan.most); ++i) {
    if (!shapes_.satisfiable(shapes_.item_of(shape, i))) plan.most = i;
  }
  plan.last = std::max({plan.prefix, plan.least, plan.most == Exprs::kMany ? 0 : plan.most});
  if (shape.contains.size() > kMostContains) {
    shapes_.fail(error(Code::unsupported, "more than {} contains hold for one array", kMostContains));
  }
  return found->second;
}

bool JsonSource::items_may_be(const ItemPlan& plan, const Progress& next) {
  if (plan.most != Exprs::kMany && std::max(plan.least, next.count) > plan.most) return false;
  for (size_t i = 0; i < plan.shape->contains.size(); ++i) {
    const Shape::Contains& contains = plan.shape->contains[i];
    int missing = contains.least - next.found[i];
    for (int at = std::max(next.count, contains.from); missing > 0; ++at) {
      if (plan.most != Exprs::kMany && at >= plan.most) return false;
      const bool fits = shapes_.satisfiable(shapes_.item_of(*plan.shape, at, {contains.of}));
      if (fits && at >= plan.prefix) break;  // and so does every one after it
      if (fits) --missing;
      if (!fits && at >= plan.prefix) return false;
    }
    if (missing > 0 && plan.most != Exprs::kMany && plan.most - next.count < missing) return false;
  }
  return true;
}

void JsonSource::expand_items(const Frame& frame, Sequences& out) {
  const ItemPlan& plan = *items_[static_cast<size_t>(frame.a)];
  const Progress now = *progress_[static_cast<size_t>(frame.b)];
  bool complete = now.count >= plan.least;
  for (size_t i = 0; i < now.found.size(); ++i) complete &= now.found[i] >= plan.shape->contains[i].least;
  if (complete) out.push_back({lex(frame.c == kFirst ? close_bracket_ : close_bracket_after_)});
  if (plan.most != Exprs::kMany && now.count >= plan.most) return;
  Sequences items;
  add_items(plan, frame.a, now, items);
  for (std::vector<Frame>& item : items) {
    if (frame.c == kNext) item.insert(item.begin(), lex(comma_));
    out.push_back(std::move(item));
  }
}

void JsonSource::add_items(const ItemPlan& plan, int32_t id, const Progress& now, Sequences& out) {
  const std::vector<Shape::Contains>& contains = plan.shape->contains;
  for (unsigned bits = 0; bits < (1u << contains.size()); ++bits) {
    std::vector<Literal> more;
    Progress next = now;
    next.count = std::min(now.count + 1, plan.last);
    bool useful = true;
    for (size_t i = 0; i < contains.size(); ++i) {
      const Shape::Contains& one = contains[i];
      const bool chosen = (bits >> i & 1) != 0;
      if (now.count < one.from) {
        useful &= !chosen;
      } else if (chosen) {
        more.push_back(one.of);
        // Counted as far as it matters.
        if (one.most != Exprs::kMany || next.found[i] < one.least) {
          ++next.found[i];
        } else {
          useful = false;
        }
        if (one.most != Exprs::kMany && next.found[i] > one.most) useful = false;
      } else if (one.most != Exprs::kMany) {
        more.push_back(-one.of);
      }
    }
    if (!useful || !items_may_be(plan, next)) continue;
    const NodeId item = shapes_.item_of(*plan.shape, now.count, more);
    if (!shapes_.satisfiable(item)) continue;
    if (plan.shape->unique && plan.most != 1) {
      add_unique(plan, id, next, item, out);
    } else {
      out.push_back({{kValue, item, 0, 0}, {kItems, id, progress_id(next), kNext}});
    }
  }
}

// Items that must differ: values of an enum and strings are remembered; of the rest it cannot be told.
void JsonSource::add_unique(const ItemPlan&, int32_t id, const Progress& now, NodeId item, Sequences& out) {
  const size_t count = shapes_.shapes(item).size();
  for (size_t i = 0; i < count; ++i) {
    const Shape& shape = shapes_.shapes(item)[i];
    std::vector<Json> values;
    if (shape.values) {
      values = *shape.values;
    } else {
      if ((shape.types & kNull) != 0) values.push_back(nullptr);
      for (bool truth : {false, true}) {
        if ((shape.types & kBool) != 0 && shape.truth[truth ? 1 : 0]) values.push_back(truth);
      }
    }
    std::vector<std::string> strings;
    for (const Json& value : values) {
      // A byte that no text has tells other values from strings.
      const std::string seen = value.is_string() ? std::string(value.get_string()) : "\xFE" + millrace::to_text(value);
      Progress next = now;
      const auto place = std::lower_bound(next.texts.begin(), next.texts.end(), seen);
      if (place != next.texts.end() && *place == seen) continue;
      if (value.is_string()) {
        strings.push_back(seen + static_cast<char>(kTextEnd));
        continue;
      }
      next.texts.insert(place, seen);
      const NodeId only = shapes_.node({shapes_.constant(value) + 1});
      out.push_back({{kValue, only, 0, 0}, {kItems, id, progress_id(next), kNext}});
    }
    const int32_t capture = now.unknown ? Frame::kMuddled : Frame::kCapture;
    if (!strings.empty()) {
      const ExprId among = exprs_.literals(std::move(strings));
      out.push_back({lex(quote_), text(among, capture), {kTakeItem, id, progress_id(now), 0}});
    }
    if (shape.values) continue;
    if ((shape.types & (kNumber | kArray | kObject)) != 0) {
      shapes_.fail(error(Code::unsupported, "uniqueItems of items that are numbers, arrays or objects"));
      return;
    }
    if ((shape.types & kString) == 0) continue;
    ExprId texts = shapes_.texts_of(shape);
    if (!now.texts.empty()) {
      std::vector<std::string> again;
      for (const std::string& old : now.texts) again.push_back(old + static_cast<char>(kTextEnd));
      texts = exprs_.both({texts, exprs_.negate(exprs_.literals(std::move(again)))});
    }
    if (!exprs_.live(texts)) continue;
    out.push_back({lex(quote_), text(texts, capture), {kTakeItem, id, progress_id(now), 0}});
  }
}

}  // namespace millrace::grammar
