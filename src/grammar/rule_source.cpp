#include "grammar/rule_source.h"

#include <algorithm>

namespace millrace::grammar {

Frame RuleSource::frame(int32_t id) const {
  const RuleNodes::Node& node = rules_.nodes[static_cast<size_t>(id)];
  if (node.kind == RuleTree::Kind::lex) return {Frame::lex, node.lex, 0, 0};
  if (node.kind == RuleTree::Kind::repeat) return {kRepeat, node.parts[0], node.least, node.most};
  return {kNode, id, 0, 0};
}

void RuleSource::expand(const Frame& top, Sequences& out) {
  if (top.kind == kRepeat) {
    if (top.b == 0) out.push_back({});
    if (top.c == 0 || !rules_.nodes[static_cast<size_t>(top.a)].productive) return;
    const int most = top.c == Exprs::kMany ? Exprs::kMany : top.c - 1;
    out.push_back({frame(top.a), {kRepeat, top.a, std::max(0, top.b - 1), most}});
    return;
  }
  const RuleNodes::Node& node = rules_.nodes[static_cast<size_t>(top.a)];
  if (node.kind == RuleTree::Kind::cat) {
    std::vector<Frame> sequence;
    for (int32_t part : node.parts) sequence.push_back(frame(part));
    out.push_back(std::move(sequence));
    return;
  }
  for (int32_t part : node.parts) {  // alternatives, and the one rule of a reference
    if (rules_.nodes[static_cast<size_t>(part)].productive) out.push_back({frame(part)});
  }
}

}  // namespace millrace::grammar
