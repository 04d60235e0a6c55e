// Link: what moving numbers between ranks takes, measured by moving some: a few and many. Every rank of a Comm calls it
// at the same time, on the thread that will move numbers.
#pragma once

#include "backend/comm.h"

namespace millrace {

struct Link {
  double seconds = 0;  // of one exchange of nearly nothing
  double bytes = 0;    // a second that a rank gets of the others; 0: not known

  double of(double exchanges, double received) const {
    return exchanges * seconds + (bytes > 0 ? received / bytes : 0);
  }
};

Link measure_link(Comm& comm);
// How many of the ranks are of the same machine as this one, by its name; itself too.
int ranks_here(Comm& comm);
// Of ranks that are threads of this process.
Link measure_thread_link(int ranks);

}  // namespace millrace
