// What a model needs and a backend may not have (Backend::has_latents, has_streams): said before anything is loaded.
// Any thread.
#pragma once

#include "backend/backend.h"
#include "model/spec.h"

namespace millrace {

Result<void> check_backend(const ModelSpec& spec, const Backend& backend);

}  // namespace millrace
