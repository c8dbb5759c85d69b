#include "collective/fabric.h"

namespace roundelay::collective {
namespace {

class Finished final : public PendingCall {
 public:
  Result<bool> test() override { return true; }
};

}  // namespace

std::unique_ptr<PendingCall> finished_call() { return std::make_unique<Finished>(); }

Status PendingCall::wait() {
  Backoff backoff(crowded());
  while (true) {
    Result<bool> done = test();
    if (!done.ok()) return done.status();
    if (*done) return {};
    idle(backoff).wait();
  }
}

}  // namespace roundelay::collective
