// JsonSource: what may come next inside JSON text that a schema describes. A value is one of its node's shapes; an
// object remembers which properties it has, an array how many items; both only ever offer what can still be completed,
// so no state it leads to is without a continuation.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "grammar/machine.h"
#include "grammar/shape.h"

namespace millrace::grammar {

struct JsonStyle {
  enum class Space : uint8_t {
    some,  // nothing, one space, or one newline with up to 40 spaces or tabs, between tokens
    none,
  };
  Space space = Space::some;
  bool in_order = false;  // declared properties in their order only
};

class JsonSource : public Source {
 public:
  JsonSource(Shapes& shapes, JsonStyle style);

  std::vector<Frame> start();
  void expand(const Frame& frame, Sequences& out) override;
  Frame receive(const Frame& frame, const std::string* captured) override;
  // Looks at everything that can be reached, so that what cannot be decided is said before the first token.
  Result<void> check();

 private:
  enum Kind : int32_t {
    kValue = Frame::control,  // a = node
    kMembers,                 // a = plan, b = progress, c = phase
    kTakeKey,                 // a = plan, b = progress, c = open key
    kTaken,                   // a = plan, b = progress after it, c = value's node
    kItems,                   // a = plan, b = progress, c = phase
    kTakeItem,                // a = plan, b = progress after it but for the text
  };
  enum Phase : int32_t { kFirst, kNext, kKey };

  struct Named {
    std::string name;
    ExprId content = Exprs::kNothing;
    NodeId value = 0;
    bool possible = false, required = false;
    std::vector<size_t> needs;                        // all that must be there too, transitively
    std::vector<std::pair<uint32_t, NodeId>> serves;  // as a witness of shape.some: of which, and its value then
  };
  struct Open {
    ExprId names = Exprs::kNothing;
    NodeId value = 0;
    uint32_t serves = 0;
  };
  struct ObjectPlan {
    const Shape* shape = nullptr;
    std::vector<Named> named;
    std::vector<Open> open;
    int least = 0, most = Exprs::kMany;
    uint32_t some = 0;  // one bit for each
  };
  struct ItemPlan {
    const Shape* shape = nullptr;
    int prefix = 0;                                // places with a say of their own
    int most = Exprs::kMany, least = 0, last = 0;  // last: where counting may stop
  };
  // How far an object or array has come.
  struct Progress {
    std::vector<bool> seen;  // named properties
    uint32_t served = 0;     // shape.some, a bit for each
    int count = 0, last = -1;
    bool unknown = false;            // a name was forgotten
    std::vector<int> found;          // contains
    std::vector<std::string> texts;  // names or items that must not come again
    auto operator<=>(const Progress&) const = default;
  };

  void expand_value(NodeId node, Sequences& out);
  void expand_shape(NodeId node, size_t index, Sequences& out);
  void expand_values(const std::vector<Json>& values, Sequences& out);
  void expand_object(const Frame& frame, Sequences& out);
  void add_named(const ObjectPlan& plan, int32_t id, const Progress& now, size_t index, Sequences& out);
  void add_open(const ObjectPlan& plan, int32_t id, const Progress& now, int32_t progress, Sequences& out);
  bool may_close(const ObjectPlan& plan, const Progress& now) const;
  bool may_be(const ObjectPlan& plan, const Progress& next) const;
  // How many properties a valid object has more, at least; none if it cannot become one.
  std::optional<int> least_more(const ObjectPlan& plan, const Progress& now, const std::vector<bool>& must) const;
  void expand_items(const Frame& frame, Sequences& out);
  void add_items(const ItemPlan& plan, int32_t id, const Progress& now, Sequences& out);
  void add_unique(const ItemPlan& plan, int32_t id, const Progress& next, NodeId item, Sequences& out);
  bool items_may_be(const ItemPlan& plan, const Progress& next);
  int32_t object_plan(NodeId node, size_t shape);
  void plan_named(const Shape& shape, ObjectPlan& plan);
  void plan_open(const Shape& shape, ObjectPlan& plan);
  int32_t item_plan(NodeId node, size_t shape);
  int32_t progress_id(Progress progress);
  Frame lex(ExprId expr) const { return {Frame::lex, expr, 0, 0}; }
  Frame text(ExprId expr, int32_t capture = 0) const { return {Frame::text, expr, 0, capture}; }

  Shapes& shapes_;
  Exprs& exprs_;
  JsonStyle style_;
  ExprId quote_, colon_, comma_, open_brace_, close_brace_, close_brace_after_, open_bracket_, close_bracket_,
      close_bracket_after_;
  std::map<std::pair<NodeId, size_t>, int32_t> object_ids_, item_ids_;
  std::vector<std::unique_ptr<ObjectPlan>> objects_;
  std::vector<std::unique_ptr<ItemPlan>> items_;
  std::map<Progress, int32_t> progress_ids_;
  std::vector<const Progress*> progress_;
};

}  // namespace millrace::grammar
