// LoadedModel: everything a model file holds, ready to run: weights on a backend, the tokenizer, the chat template, and
// which tokens end an answer. Loaded on one thread, then immutable except for its backend, which belongs to the engine
// thread. A build without text has no tokenizer: token ids go in and out, everything else is the same.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu.h"
#include "base/result.h"
#include "base/token.h"
#include "model/model.h"
#include "session/fingerprint_text.h"
#include "session/ranked.h"
#include "tensor/checkpoint.h"
#if MILLRACE_SESSION_TEXT
#include "text/calls.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#endif

namespace millrace {

struct LoadChoice {
  std::filesystem::path path;
  std::string device = "cpu";  // as open_device (device.h) takes it
  CpuOptions cpu = {};
  int ranks = 1;                   // that share the model (session/ranked.h)
  bool mpi = false;                // they are the processes of this MPI job
  RankCut cut = RankCut::outputs;  // what of the model each has
  int64_t context = 0;             // longest sequence that will be run; 0: as long as the model says
  int64_t memory_limit = 0;        // bytes over all purposes; 0: none
  KvKeep keep = {};                // what its cache keeps; nothing said: everything
  bool fingerprint = false;        // digest the weights and what text goes by, for fingerprint_of
  bool weights = true;             // false: shapes and text only; what computes is elsewhere
  std::string chat_template = {};  // the source of one to use instead of the model's own
  std::function<bool(int64_t done, int64_t total)> progress = {};
};

class LoadedModel {
 public:
  static Result<std::unique_ptr<LoadedModel>> load(const LoadChoice& choice);

  const Checkpoint& checkpoint() const { return checkpoint_; }
  const Model& model() const { return outline_ ? *outline_ : ranked_->model(); }
  Backend& backend() { return outline_ ? *trace_ : ranked_->backend(); }
  const Backend& backend() const { return outline_ ? *trace_ : ranked_->backend(); }
  const Ranked* ranked() const { return ranked_.get(); }  // null without weights
  int32_t vocab() const { return model().spec().vocab; }
  int32_t context() const { return model().spec().context; }
  double load_seconds() const { return load_seconds_; }
  // Another process has read the weights from files in these states: the very same as here, or an error.
  Result<void> check_same_files(std::span<const FileState> theirs) const;
  // Keeps a digest of the weights that a process which may not write has taken of these files, for the next time. If
  // anything at all tells them from those that were opened here, nothing is kept.
  void keep_digest(const LoadChoice& choice, std::span<const FileState> theirs, const Identity& digest) const;
  // What became of weights that are stored as codes and scales, in one line with bytes; empty if there were none.
  const std::string& kept_as() const { return kept_as_; }

  std::optional<Token> begin_token() const { return begin_; }  // only if texts start with it
  std::span<const Token> end_tokens() const { return ends_; }
  const std::optional<TextDigests>& text_digests() const { return text_digests_; }  // if LoadChoice asked for them

#if MILLRACE_SESSION_TEXT
  // Null if the files have no tokenizer this build can read; tokenizer_error() says why.
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  // Null if the model has none, or none that can be understood; chat_error() says which.
  const ChatTemplate* chat_template() const { return chat_template_ ? &*chat_template_ : nullptr; }
  // How it writes calls of tools and reasoning, control tokens as control_bytes(); found on first use. Any thread.
  const CallFormat& calls() const;
#endif
  const std::string& chat_error() const { return chat_error_; }
  const std::string& tokenizer_error() const { return tokenizer_error_; }

  // Tokens whose text contains one of these, ascending. None without a tokenizer.
  std::vector<Token> tokens_containing(std::span<const std::string> texts) const;

 private:
  explicit LoadedModel(Checkpoint checkpoint) : checkpoint_(std::move(checkpoint)) {}
  Result<void> read_model(const LoadChoice& choice);
  Result<void> read_text(const LoadChoice& choice);
#if MILLRACE_SESSION_TEXT
  Result<void> read_tokenizer();
#endif
  void read_ends();

  Checkpoint checkpoint_;
  std::unique_ptr<Ranked> ranked_;
  std::unique_ptr<Backend> trace_;  // without weights: shapes, on nothing
  std::unique_ptr<Model> outline_;
  std::optional<Token> begin_;
  std::vector<Token> ends_;
  std::optional<TextDigests> text_digests_;
#if MILLRACE_SESSION_TEXT
  std::optional<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_template_;
  mutable std::once_flag calls_found_;
  mutable CallFormat calls_;
#endif
  std::string tokenizer_error_, chat_error_, kept_as_;
  double load_seconds_ = 0;
};

}  // namespace millrace
