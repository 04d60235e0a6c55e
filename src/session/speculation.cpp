#include "session/speculation.h"

#include <algorithm>

#include "backend/ranks/ranks.h"
#include "base/cache_folder.h"
#include "base/json.h"
#include "engine/draft/chain.h"
#include "engine/draft/head.h"
#include "engine/draft/model.h"
#include "engine/draft/suffix.h"

namespace millrace {
namespace {

bool from_text(std::string_view name) { return name == "ngram" || name == "suffix"; }

// What llama.cpp's --spec-type says: a kind here, or nothing where the file that is named beside it says what it is.
std::string_view known_as(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"ngram-simple", "ngram"}, {"ngram-map-k", "ngram"}, {"ngram-map-k4v", "ngram"}, {"ngram-mod", "ngram"},
      {"ngram-cache", "suffix"}, {"draft-mtp", "mtp"},     {"draft-simple", "none"},   {"draft-eagle3", "none"}};
  for (const auto& [theirs, ours] : kNames)
    if (name == theirs) return ours;
  return name;
}

}  // namespace

Result<Drafters::Kind> Drafters::open_one(const std::string& name, bool digest, LoadedModel& target, int64_t context) {
  Kind kind{.name = name, .checkpoint = nullptr, .model = nullptr, .head = nullptr};
  if (from_text(name)) return kind;
  if (name == "mtp") {
    if (comm_of(target.backend()) != nullptr)
      return error(Code::unsupported, "mtp: heads run on one rank so far; with --ranks guess with ngram or suffix");
    TRY(kind.head, Head::load_own(target.checkpoint(), target.model(), target.backend()));
    return kind;
  }
  std::error_code failure;
  if (!std::filesystem::exists(name, failure))
    return error(Code::invalid,
                 "'{}' is neither a way to guess (ngram, suffix, mtp) nor the file of a draft model or a head", name);
  if (comm_of(target.backend()) != nullptr)
    return error(Code::unsupported,
                 "{}: draft models and heads run on one rank so far; with --ranks guess with ngram or suffix", name);
  TRY(Checkpoint checkpoint, Checkpoint::open(name));
  kind.checkpoint = std::make_unique<Checkpoint>(std::move(checkpoint));
  if (Head::is_head(*kind.checkpoint)) {
    TRY(kind.head, Head::load(*kind.checkpoint, target.model(), target.backend()));
    return kind;
  }
  // Where the target has a fixed size, so has what drafts for it; layers that forget alone are the target's own.
  const KvKeep keep = target.model().spec().keep.bounded() ? target.model().spec().keep : KvKeep{};
  auto model =
      Model::load(*kind.checkpoint, target.backend(),
                  {.context = context, .forget = keep, .digest = digest, .digests = cache_folder(), .progress = {}});
  if (!model.ok()) return within(name, model.error());
  kind.model = std::move(*model);
  if (kind.model->spec().vocab != target.vocab())
    return error(Code::invalid, "{}: a draft model of {} tokens for a model of {}: they must have the same vocabulary",
                 name, kind.model->spec().vocab, target.vocab());
  return kind;
}

Result<std::unique_ptr<Drafters>> Drafters::open(const SpeculateOptions& options, LoadedModel& target,
                                                 int64_t context) {
  auto made = std::make_unique<Drafters>();
  made->options_ = options;
  if (options.most < 1 || options.most > kMostDrafts)
    return error(Code::invalid, "{} guesses a step: ask for 1 to {}", options.most, kMostDrafts);
  for (const std::string& asked : options.names) {
    const std::string name(known_as(asked));
    if (name.empty() || name == "none") continue;
    TRY(Kind kind, open_one(name, options.rule != DraftRule::exact, target, context));
    const bool heads =
        std::any_of(made->kinds_.begin(), made->kinds_.end(), [](const Kind& k) { return k.head != nullptr; });
    if (kind.head != nullptr && heads) return error(Code::invalid, "{}: one head at a time", name);
    made->kinds_.push_back(std::move(kind));
  }
  if (options.branches > 0 && (!made->any() || options.rule != DraftRule::exact))
    return error(Code::invalid, "--draft-tree is about guesses by rule exact: say what guesses (--speculate)");
  if (!made->any() && options.rule != DraftRule::exact)
    return error(Code::invalid, "rule {} is about guesses: say what guesses (--speculate)", rule_name(options.rule));
  return made;
}

BesideLayers Drafters::beside() const {
  BesideLayers all;
  for (const Kind& kind : kinds_) all.add(kind.beside());
  return all;
}

// By names, shapes and the beginnings of tensors: enough to tell one file from another.
Identity Drafters::identity(const Identity& target) const {
  constexpr size_t kBeginning = 4096;
  Digest digest;
  digest.add(target);
  for (const Kind& kind : kinds_) {
    if (!kind.beside().any()) continue;
    digest.add_sized(kind.checkpoint == nullptr ? kind.name : "");  // the layer in the target's own file
    if (kind.checkpoint == nullptr) continue;
    for (const StoredTensor& tensor : kind.checkpoint->tensors()) {
      digest.add_sized(tensor.name);
      digest.add_sized(format(tensor.type).name);
      digest.add(std::as_bytes(std::span(tensor.shape)));
      digest.add(tensor.bytes.first(std::min(tensor.bytes.size(), kBeginning)));
    }
  }
  return digest.finish();
}

std::optional<Identity> Drafters::changes() const {
  if (!any() || rule() == DraftRule::exact) return {};
  Digest digest;
  digest.add_sized(rule_name(rule()));
  digest.add_sized(fmt::format("{} {}", most(), options_.branches));
  for (const Kind& kind : kinds_) {
    digest.add_sized(kind.model != nullptr ? "model" : kind.name);  // heads are refused with such rules (check_rule)
    if (kind.model != nullptr) digest.add(kind.model->content().value());
  }
  return digest.finish();
}

BesideLayers Drafters::Kind::beside() const {
  if (head != nullptr) return HeadDrafter::beside(head->spec());
  return model != nullptr ? ModelDrafter::beside(model->spec()) : BesideLayers{};
}

DraftOptions Drafters::for_engine() const {
  DraftOptions options{.make = {}, .most = most(), .steady = false, .branches = options_.branches, .rule = rule()};
  options.beside = beside();
  if (any()) options.make = [this](Executor& target, Backend& backend) { return drafter(target, backend); };
  return options;
}

// Clients' predictions come first, whatever else guesses.
Result<std::unique_ptr<Drafter>> Drafters::drafter(Executor& target, Backend& backend) const {
  if (!any()) return std::unique_ptr<Drafter>();
  std::vector<std::unique_ptr<Drafter>> links;
  int first = 0;  // of the layers beside the target's
  if (!from_text(kinds_.front().name)) {
    TRY(auto predicted, SuffixDrafter::create({.predicted = true}, target, backend));
    links.push_back(std::move(predicted));
  }
  for (const Kind& kind : kinds_) {
    if (kind.head != nullptr) {
      TRY(auto drafter, HeadDrafter::create(*kind.head, target, backend, first));
      links.push_back(std::move(drafter));
    } else if (kind.model != nullptr) {
      TRY(auto drafter, ModelDrafter::create(*kind.model, target, backend, first));
      links.push_back(std::move(drafter));
    } else {
      TRY(auto drafter, SuffixDrafter::create({.earlier = kind.name == "suffix"}, target, backend));
      links.push_back(std::move(drafter));
    }
    first += static_cast<int>(kind.beside().layers.size());
    TRY_VOID(check_rule(rule(), *links.back()));
  }
  if (links.size() == 1) return std::move(links[0]);
  return std::unique_ptr<Drafter>(new ChainDrafter(std::move(links)));
}

Result<SpeculateOptions> read_speculative_config(std::string_view json) {
  TRY(const Json config, parse_json(json, {.max_bytes = 1 << 16, .max_depth = 4, .refuse_duplicate_keys = true}));
  if (!config.is_object()) return error(Code::invalid, "the speculative configuration is no JSON object");
  for (const auto& member : config.get_object()) {
    const std::string_view key = member.key();
    if (key != "method" && key != "model" && key != "num_speculative_tokens")
      return error(
          Code::invalid,
          "'{}' of a speculative configuration is not known here: method, model and num_speculative_tokens are", key);
  }
  SpeculateOptions options;
  TRY(const std::string method, get_string(config, "method", ""));
  TRY(const std::string model, get_string(config, "model", ""));
  TRY(const int64_t most, get_int(config, "num_speculative_tokens", options.most));
  if (most < 1 || most > kMostDrafts)
    return error(Code::invalid, "num_speculative_tokens is {}: ask for 1 to {}", most, kMostDrafts);
  options.most = static_cast<int>(most);
  const bool text = method == "ngram" || method == "suffix";
  const bool own = model.empty() && (method == "mtp" || method == "deepseek_mtp");  // in the model's file
  const bool file = method.empty() || method == "draft_model" || method == "medusa" || method == "eagle3" ||
                    method == "mtp" || method == "deepseek_mtp";
  if (!text && !file)
    return error(Code::unsupported, "no method '{}': take ngram, suffix, draft_model, medusa, eagle3 or mtp", method);
  if (file && model.empty() && !own)
    return error(Code::invalid, "a speculative configuration needs a method, or the model that guesses");
  options.names = {text ? method : own ? "mtp" : model};
  return options;
}

}  // namespace millrace
