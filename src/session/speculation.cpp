#include "session/speculation.h"

#include <algorithm>

#include "engine/draft/chain.h"
#include "engine/draft/head.h"
#include "engine/draft/model.h"
#include "engine/draft/suffix.h"

namespace millrace {

Result<Speculation::Kind> Speculation::open_one(const std::string& name, LoadedModel& target, int64_t context) {
  Kind kind{.name = name, .checkpoint = nullptr, .model = nullptr, .head = nullptr};
  if (name == "ngram" || name == "suffix") return kind;
  std::error_code failure;
  if (!std::filesystem::exists(name, failure))
    return error(Code::invalid,
                 "'{}' is neither a way to guess (ngram, suffix) nor the file of a draft model or a head", name);
  TRY(Checkpoint checkpoint, Checkpoint::open(name));
  kind.checkpoint = std::make_unique<Checkpoint>(std::move(checkpoint));
  if (Head::is_head(*kind.checkpoint)) {
    TRY(kind.head, Head::load(*kind.checkpoint, target.model(), target.backend()));
    return kind;
  }
  auto model = Model::load(*kind.checkpoint, target.backend(), {.context = context, .progress = {}});
  if (!model.ok()) return within(name, model.error());
  kind.model = std::move(*model);
  if (kind.model->spec().vocab != target.vocab())
    return error(Code::invalid, "{}: a draft model of {} tokens for a model of {}: they must have the same vocabulary",
                 name, kind.model->spec().vocab, target.vocab());
  return kind;
}

Result<std::unique_ptr<Speculation>> Speculation::open(const std::vector<std::string>& names, LoadedModel& target,
                                                       int64_t context) {
  auto made = std::make_unique<Speculation>();
  for (const std::string& name : names) {
    if (name.empty() || name == "none") continue;
    TRY(Kind kind, open_one(name, target, context));
    const bool heads =
        std::any_of(made->kinds_.begin(), made->kinds_.end(), [](const Kind& k) { return k.head != nullptr; });
    if (kind.head != nullptr && heads) return error(Code::invalid, "{}: one head at a time", name);
    made->kinds_.push_back(std::move(kind));
  }
  return made;
}

DrafterMaker Speculation::maker() const {
  if (!any()) return {};
  return [this](Executor& target, Backend& backend) { return drafter(target, backend); };
}

Result<std::unique_ptr<Drafter>> Speculation::drafter(Executor& target, Backend& backend) const {
  std::vector<std::unique_ptr<Drafter>> links;
  for (const Kind& kind : kinds_) {
    if (kind.head != nullptr) {
      TRY(auto drafter, HeadDrafter::create(*kind.head, target, backend));
      links.push_back(std::move(drafter));
    } else if (kind.model != nullptr) {
      TRY(auto drafter, ModelDrafter::create(*kind.model, target, backend));
      links.push_back(std::move(drafter));
    } else {
      links.push_back(std::make_unique<SuffixDrafter>(SuffixOptions{.earlier = kind.name == "suffix"}));
    }
  }
  if (links.empty()) return std::unique_ptr<Drafter>();
  if (links.size() == 1) return std::move(links[0]);
  return std::unique_ptr<Drafter>(new ChainDrafter(std::move(links)));
}

}  // namespace millrace
