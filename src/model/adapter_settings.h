// AdapterSettings: what adapter_config.json, or the metadata of a GGUF file, says about all tensors of an adapter: how
// its products are scaled. Settings that would change more than that are refused by name. Values; any thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "tensor/metadata.h"

namespace millrace {

class AdapterSettings {
 public:
  static Result<AdapterSettings> from_peft(const Json& config);
  // `architecture`: of the model, in GGUF's words.
  static Result<AdapterSettings> from_gguf(const Metadata& metadata, std::string_view architecture);

  // The scale of a module's product, given its rank; refused if that is not the rank the settings say it has.
  Result<float> scale(std::string_view module, int64_t rank) const;

 private:
  template <class T>
  using Patterns = std::vector<std::pair<std::string, T>>;  // the first that fits counts
  Result<void> read_patterns(const Json& config);

  double alpha_ = 0;  // 0 in a GGUF: products are added as they are
  int64_t rank_ = 0;  // 0: the tensors say it
  bool by_root_ = false, bare_ = false;
  Patterns<int64_t> ranks_;
  Patterns<double> alphas_;
};

}  // namespace millrace
