#include "apps/cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace millrace::apps {
namespace {

std::atomic<int> scopes = 0;
std::atomic<int> raised = 0;  // the signal, 0 if none

void on_interrupt(int signal) {
  if (scopes.load() > 0 && raised.exchange(signal) == 0) return;
  ::_exit(128 + signal);
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  // A file that outgrows its limit is an error of that write, as on a full disk: nothing half written stays.
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGXFSZ, &action, nullptr);
  // A reader that went away (`millrace ... | head`) ends us quietly, whatever our parent had set.
  action.sa_handler = SIG_DFL;
  ::sigaction(SIGPIPE, &action, nullptr);
}

Interruptible::Interruptible() { scopes.fetch_add(1); }
Interruptible::~Interruptible() { scopes.fetch_sub(1); }
bool Interruptible::interrupted() { return raised.load() != 0; }
void Interruptible::clear() { raised.store(0); }

int interrupted_exit_code() { return 128 + raised.load(); }

Error interrupted_error() { return error(Code::cancelled, "interrupted"); }

}  // namespace millrace::apps
