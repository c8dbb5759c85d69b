// Decides when a call in progress has to end early, and writes its error, in the same words on every fabric.
#pragma once

#include <string>
#include <string_view>

#include "collective/fabric.h"

namespace roundelay::collective {

// One thread at a time. `call` and `group` outlive it. `waiting_for` is the index in the group of the member
// that the call waits for, or -1.
class CallWatch {
 public:
  CallWatch(const Call& call, const Group& group) : call_(call), group_(group) {}

  // Returns the cause when the call's abort token is raised, and kAborted with `late` when the deadline has
  // passed. Call it only after a test in which nothing moved, so that a call whose data has come succeeds,
  // however late.
  Status interrupted(int waiting_for, std::string_view late = "made no progress until its deadline");
  // Returns kAborted with the operation, its bytes, `what` and the rank that the call waits for.
  [[nodiscard]] Status explain(const std::string& what, int waiting_for) const;
  // Returns kAborted for a call that its owner dropped before its end.
  [[nodiscard]] Status dropped() const;

 private:
  const Call& call_;
  const Group& group_;
  unsigned tests_ = 0;  // not every test reads the clock
};

}  // namespace roundelay::collective
