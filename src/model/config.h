// Config: a model's hyper-parameters under Hugging Face's key names, wherever they came from. A config.json of either
// generation (rope_theta / rope_scaling / torch_dtype, or rope_parameters / dtype; a text_config inside) and the
// metadata of a GGUF file (model/gguf_keys) end up here, so an architecture is described once.
//
// Getters note the first thing that is wrong and return a harmless value, so that describe() reads as a list; whoever
// called it asks status() once. Used on the loading thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace millrace {

class Config {
 public:
  Config() = default;
  // Keys may be given the names their file has for them, which errors then use.
  Config(std::string origin, JsonObject values, std::map<std::string, std::string, std::less<>> names = {});

  // Hugging Face: flattens text_config, settles aliases (n_embd, ffn_dim, rotary_pct ...) and refuses quantised
  // checkpoints.
  static Result<Config> from_json(std::string origin, const Json& config);

  const std::string& origin() const { return origin_; }  // "config.json"
  std::string model_type() const;
  // The longest sequence that will be run, if known: some rotary scalings depend on it.
  int64_t wanted_context() const { return wanted_context_; }
  void set_wanted_context(int64_t tokens) { wanted_context_ = tokens; }

  bool has(std::string_view key) const;                            // present and not null
  bool is_null(std::string_view key) const;                        // present and null
  int32_t count(std::string_view key, int64_t otherwise);          // 1 or more
  int32_t count_or_none(std::string_view key, int64_t if_absent);  // null or 0: 0
  double number(std::string_view key, double otherwise);
  double positive(std::string_view key, double otherwise);
  double number_or_none(std::string_view key, double if_absent);  // null: 0
  bool flag(std::string_view key, bool otherwise);
  std::string text(std::string_view key, std::string_view otherwise);
  // Lists; empty if absent. `size` 0: any.
  std::vector<std::string> texts(std::string_view key, size_t size);
  std::vector<int64_t> integers(std::string_view key, size_t size);
  std::vector<float> numbers(std::string_view key, size_t size);
  Config object(std::string_view key) const;  // empty if absent; its errors are noted here too

  void refuse(std::string_view key, std::string_view why);  // an unsupported value, with what it is
  void fail(Error error);                                   // keeps the first
  Result<void> status() const;

  std::string name_of(std::string_view key) const;  // as its file has it
  const JsonObject& values() const { return values_; }
  void set(std::string_view key, Json value) { values_[key] = std::move(value); }

 private:
  const Json* find(std::string_view key) const;
  void wrong(std::string_view key, std::string_view expected);

  std::string origin_;
  std::string path_;  // of an object within the whole: "rope_parameters."
  JsonObject values_;
  std::map<std::string, std::string, std::less<>> names_;
  int64_t wanted_context_ = 0;
  std::shared_ptr<std::optional<Error>> error_ = std::make_shared<std::optional<Error>>();
};

}  // namespace millrace
