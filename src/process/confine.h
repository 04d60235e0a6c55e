// Takes from this process what an engine does not need, for good: the network, starting programs, and changing files.
// Model files are the most hostile input there is; whoever finds a mistake in their reading finds himself with none of
// these. Files may still be read. Before any thread is started.
#pragma once

#include "base/result.h"

namespace millrace {

// With `network` it may still open connections of its own, as to a store of pages.
Result<void> confine(bool network = false);

// If memory runs out, the system ends this process and what it starts before others: whoever watches over it can
// replace it. Before confine().
void end_first();

}  // namespace millrace
