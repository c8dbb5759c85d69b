// When a call in progress has to end early, and what is said of it: the same words on every fabric.
#pragma once

#include <string>
#include <string_view>

#include "collective/fabric.h"

namespace roundelay::collective {

// `call` and `group` outlive it. `waiting_for` is the group's index of the member that is waited for, -1:
// none.
class CallWatch {
 public:
  CallWatch(const Call& call, const Group& group) : call_(call), group_(group) {}

  // Not ok: aborted, or late. To be looked at only while nothing moves: a call whose data is there ends well,
  // however late.
  Status interrupted(int waiting_for, std::string_view late = "made no progress until its deadline");
  [[nodiscard]] Status explain(const std::string& what, int waiting_for) const;
  [[nodiscard]] Status dropped() const;

 private:
  const Call& call_;
  const Group& group_;
  unsigned tests_ = 0;
};

}  // namespace roundelay::collective
