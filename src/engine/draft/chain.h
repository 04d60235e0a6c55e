// Several drafters in a row: whoever has nothing to say about an answer leaves it to the next. Runner's thread.
#pragma once

#include <algorithm>

#include "engine/draft/drafter.h"

namespace millrace {

class ChainDrafter : public Drafter {
 public:
  explicit ChainDrafter(std::vector<std::unique_ptr<Drafter>> links) : links_(std::move(links)) {}
  std::string_view name() const override { return "chain"; }
  void propose(std::span<const DraftAsk> asks) override;
  bool repeats_itself() const override {
    return std::all_of(links_.begin(), links_.end(), [](const auto& link) { return link->repeats_itself(); });
  }
  bool observes() const override {
    return std::any_of(links_.begin(), links_.end(), [](const auto& link) { return link->observes(); });
  }
  void observe(std::span<Observed> rows) override;
  void forget(RequestId request) override {
    for (auto& link : links_) link->forget(request);
  }

 private:
  std::vector<std::unique_ptr<Drafter>> links_;
  std::vector<DraftAsk> open_;
};

}  // namespace millrace
