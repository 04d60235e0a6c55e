// --tensor-type REGEX=TYPE: formats of single tensors, by the names they have in GGUF files. Main thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/source.h"
#include "tensor/dtype.h"

namespace millrace::apps {

// The format each matrix is said to have: the first rule whose expression is found in its name. Refused: what is no
// expression or format, formats that cannot be made, rules that fit no matrix, rows that do not fill the format's
// groups.
Result<std::vector<std::optional<DType>>> tensor_types(const ModelSource& source, const std::vector<Slot>& slots,
                                                       const std::vector<std::string>& rules);

}  // namespace millrace::apps
