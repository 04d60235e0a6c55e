// RuleSource: what may come next in a text that rules describe. One thread at a time, as its Machine.
#pragma once

#include <utility>
#include <vector>

#include "grammar/machine.h"
#include "grammar/rules.h"

namespace millrace::grammar {

class RuleSource : public Source {
 public:
  explicit RuleSource(RuleNodes rules) : rules_(std::move(rules)) {}

  std::vector<Frame> start() const { return {frame(rules_.start)}; }
  void expand(const Frame& frame, Sequences& out) override;
  Frame receive(const Frame& frame, const std::string*) override { return frame; }

 private:
  enum Kind : int32_t { kNode = Frame::control, kRepeat };  // a = node; kRepeat: b, c = how often still
  Frame frame(int32_t node) const;
  RuleNodes rules_;
};

}  // namespace millrace::grammar
