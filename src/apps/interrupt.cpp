#include "apps/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "apps/cli.h"

namespace millrace::apps {
namespace {

std::atomic<int> scopes = 0;
std::atomic<bool> raised = false;

void on_interrupt(int) {
  if (scopes.load() > 0 && !raised.exchange(true)) return;
  ::_exit(kExitInterrupted);
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  ::sigaction(SIGINT, &action, nullptr);
  // A reader that went away (`millrace ... | head`) ends us quietly, whatever our parent had set.
  action.sa_handler = SIG_DFL;
  ::sigaction(SIGPIPE, &action, nullptr);
}

Interruptible::Interruptible() { scopes.fetch_add(1); }
Interruptible::~Interruptible() { scopes.fetch_sub(1); }
bool Interruptible::interrupted() { return raised.load(); }
void Interruptible::clear() { raised.store(false); }

Error interrupted_error() { return error(Code::cancelled, "interrupted"); }

}  // namespace millrace::apps
