// Routes by which an operator stops a server for a while, has it give its memory back, or gives it other weights; by
// the names that vLLM and SGLang made familiar. All that change something need an operator's key.
#pragma once

#include "server/route.h"

namespace millrace {

void pause_server(Service& service, Call call);
void resume_server(Service& service, Call call);
void is_paused(Service& service, Call call);
void sleep_server(Service& service, Call call);
void wake_server(Service& service, Call call);
void is_sleeping(Service& service, Call call);
void reset_prefix_cache(Service& service, Call call);
void update_weights(Service& service, Call call);

}  // namespace millrace
