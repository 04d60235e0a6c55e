#include "session/loaded_model.h"

#include <algorithm>
#include <chrono>

#include "backend/trace/trace.h"
#include "base/cache_folder.h"
#include "model/known_digests.h"
#include "session/calls.h"
#include "session/device.h"

namespace millrace {
namespace {

// A key that is a token id or a list of them.
void add_tokens(const Json& config, std::string_view key, std::vector<Token>& out) {
  const Json* value = find(config, key);
  if (value == nullptr) return;
  auto add = [&](const Json& id) {
    if (id.is_int64() && id.get_int64() >= 0 && id.get_int64() <= INT32_MAX)
      out.push_back(static_cast<Token>(id.get_int64()));
  };
  add(*value);
  if (const auto* list = value->if_array()) {
    for (const Json& id : *list) add(id);
  }
}

}  // namespace

namespace {

// Whoever asks for float32 arithmetic wants the numbers themselves, where there is such.
Keep keep_of(const LoadChoice& choice) {
  const bool gpu = choice.device.starts_with("cuda") || choice.device == kNcclDevice;
  const bool exact = choice.device == "reference" || (!gpu && choice.cpu.activations == Activations::float32);
  return exact ? Keep::exact : Keep::small;
}

}  // namespace

Result<void> LoadedModel::check_same_files(std::span<const FileState> theirs) const {
  if (std::ranges::equal(checkpoint_.states(), theirs)) return {};
  return error(
      Code::io,
      "{}: changed between two readings of it, by the server and by its engine: try again once it stays the same",
      checkpoint_.path().string());
}

void LoadedModel::keep_digest(const LoadChoice& choice, std::span<const FileState> theirs,
                              const Identity& digest) const {
  const auto untouched = [](const FileState& a, const FileState& b) { return a == b && a.changed == b.changed; };
  if (!std::ranges::equal(checkpoint_.states(), theirs, untouched)) return;
  const auto source = ModelSource::open(checkpoint_, choice.context, keep_of(choice));
  if (!source.ok()) return;
  const KnownDigests known(cache_folder(), *source);
  if (!known.find()) known.keep(digest);
}

Result<std::unique_ptr<LoadedModel>> LoadedModel::load(const LoadChoice& choice) {
  const auto start = std::chrono::steady_clock::now();
  TRY(Checkpoint checkpoint, Checkpoint::open(choice.path));
  std::unique_ptr<LoadedModel> loaded(new LoadedModel(std::move(checkpoint)));
  if (auto read = loaded->read_model(choice); !read.ok()) {
    // What a file's own reader says begins with its path.
    if (read.error().message.starts_with(choice.path.string())) return read.error();
    return within(choice.path.string(), read.error());
  }
  loaded->read_ends();
  Result<void> read = loaded->read_text(choice);
  TRY_VOID(loaded->checkpoint_.unchanged());
  TRY_VOID(std::move(read));
  std::sort(loaded->ends_.begin(), loaded->ends_.end());
  loaded->ends_.erase(std::unique(loaded->ends_.begin(), loaded->ends_.end()), loaded->ends_.end());
  loaded->load_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return loaded;
}

Result<void> LoadedModel::read_model(const LoadChoice& choice) {
  TRY(ModelSource source, ModelSource::open(checkpoint_, reach_of(choice.keep, choice.context), keep_of(choice)));
  TRY_VOID(source.forget(choice.keep));
  if (!choice.weights) {
    trace_ = make_trace_backend();
    TRY(outline_, Model::outline(
                      source.spec(), [&](const Slot& slot) { return source.form_of(slot); }, *trace_));
    return {};
  }
  kept_as_ = source.kept_as();
  const LoadOptions options{
      .context = choice.context, .digest = choice.fingerprint, .digests = cache_folder(), .progress = choice.progress};
  const RankChoice ranks{.device = choice.device,
                         .cpu = choice.cpu,
                         .ranks = choice.ranks,
                         .mpi = choice.mpi,
                         .memory_limit = choice.memory_limit,
                         .cut = choice.cut};
  TRY(ranked_, Ranked::open(ranks, [&](Backend& backend) { return Model::load(source, backend, options); }));
  if (!kept_as_.empty() && backend().apart())
    kept_as_ += fmt::format("; on {} all weights take {:.1f} MB, since what it has no panels for becomes BF16",
                            backend().description(), static_cast<double>(backend().used(Purpose::weights)) / 1e6);
  return {};
}

// What the model's own files say without a tokenizer's help.
void LoadedModel::read_ends() {
  add_tokens(checkpoint_.config(), "eos_token_id", ends_);
  add_tokens(checkpoint_.generation_config(), "eos_token_id", ends_);
  for (std::string_view key : {"eos", "eot", "eom"}) {
    auto id = checkpoint_.metadata().get_int(fmt::format("tokenizer.ggml.{}_token_id", key), -1);
    if (id.ok() && *id >= 0) ends_.push_back(static_cast<Token>(*id));
  }
  std::erase_if(ends_, [&](Token token) { return token >= vocab(); });
}

#if MILLRACE_SESSION_TEXT

Result<void> LoadedModel::read_text(const LoadChoice& choice) {
  TRY_VOID(read_tokenizer());
  ChatFacts facts = ChatFacts::of(checkpoint_, tokenizer());
  if (!choice.chat_template.empty()) facts.templates = {{"default", choice.chat_template}};
  if (choice.fingerprint)
    text_digests_ = {.tokenizer = digest_of_tokenizer(checkpoint_), .chat = digest_of_chat(facts)};
  auto chat = ChatTemplate::from(std::move(facts));
  if (!chat.ok() && !choice.chat_template.empty()) return within("the chat template", chat.error());
  if (chat.ok()) {
    chat_template_ = std::move(*chat);
  } else {
    chat_error_ = chat.error().message;
  }
  return {};
}

Result<void> LoadedModel::read_tokenizer() {
  auto tokenizer = Tokenizer::open(checkpoint_);
  if (!tokenizer.ok()) {
    // Fine for a model run on token ids; whoever needs text reports this.
    tokenizer_error_ = tokenizer.error().message;
    return {};
  }
  tokenizer_ = std::move(*tokenizer);
  if (tokenizer_->size() > vocab()) {
    return error(Code::corrupt, "{}: the tokenizer has {} tokens, but the model's embedding has rows for {} only",
                 checkpoint_.path().string(), tokenizer_->size(), vocab());
  }
  ends_.insert(ends_.end(), tokenizer_->ends().begin(), tokenizer_->ends().end());
  const SpecialTokens& special = tokenizer_->special();
  if (special.wants_begin) begin_ = special.begin;
  return {};
}

const CallFormat& LoadedModel::calls() const {
  std::call_once(calls_found_, [this] {
    if (tokenizer_ && chat_template_) calls_ = tie_calls(find_calls(*chat_template_), *tokenizer_, ends_);
  });
  return calls_;
}

std::vector<Token> LoadedModel::tokens_containing(std::span<const std::string> texts) const {
  std::vector<Token> found;
  for (Token id = 0; tokenizer_ && id < tokenizer_->size(); ++id) {
    const std::string bytes = tokenizer_->token_bytes(id);
    auto inside = [&](const std::string& text) { return bytes.find(text) != std::string::npos; };
    if (std::any_of(texts.begin(), texts.end(), inside)) found.push_back(id);
  }
  return found;
}

#else

Result<void> LoadedModel::read_text(const LoadChoice& choice) {
  if (choice.fingerprint) text_digests_ = {.tokenizer = digest_of_tokenizer(checkpoint_), .chat = {}};
  tokenizer_error_ = chat_error_ = "this build has no text support; give token ids (--ids)";
  std::vector<Token> begin;
  add_tokens(checkpoint_.config(), "bos_token_id", begin);
  if (!begin.empty() && begin[0] < vocab()) begin_ = begin[0];
  return {};
}

std::vector<Token> LoadedModel::tokens_containing(std::span<const std::string>) const { return {}; }

#endif

}  // namespace millrace
