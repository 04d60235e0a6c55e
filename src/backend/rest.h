// A backend at rest. Between steps, on the thread that uses it.
#pragma once

#include "backend/backend.h"

namespace millrace {

// Ends the threads that a CPU has for its work; they are started again when there is some. Afterwards the process may
// be copied with all that lies on the backend. False: this backend is not one of a single CPU, and nothing was done.
bool rest_backend(Backend& backend);

}  // namespace millrace
