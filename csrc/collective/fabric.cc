#include "collective/fabric.h"

#include "collective/backoff.h"

namespace roundelay::collective {

Status Pending::wait() {
  Backoff backoff(crowded());
  while (true) {
    Result<bool> done = test();
    if (!done.ok()) return done.status();
    if (*done) return {};
    backoff.pause();
  }
}

}  // namespace roundelay::collective
