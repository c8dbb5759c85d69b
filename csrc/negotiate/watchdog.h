// The progress clock's arbiter: when a rank is stuck inside a collective, who is to blame?
//
// Whoever misses the progress deadline says so (wire::Stuck) to the arbiter, the first of the lane's group,
// who then asks the members for a sign of life: a stopped process answers nothing, whereas one that merely
// waits for it does. One for each lane: who is no member is neither asked nor blamed. Ranks are world ranks.
// Pure: messages and time in, a fault out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/group.h"
#include "wire/messages.h"

namespace roundelay::negotiate {

inline constexpr Duration kLivenessCheckTime = std::chrono::milliseconds(1000);
// How long a stuck rank waits for the arbiter's fault before it blames the arbiter itself.
inline constexpr Duration kArbiterPatience = std::chrono::milliseconds(2500);

class Watchdog {
 public:
  explicit Watchdog(const Group& group)
      : rank_(group.world_rank()), members_(group.ranks), answered_(members_.size(), false) {}

  // This rank or (on the arbiter) a peer is stuck. True if an liveness check begins: ping all members (the
  // arbiter only).
  bool on_stuck(int from, const wire::Stuck& stuck, TimePoint now);
  void on_sign_of_life(int from);
  // A member may have left in order, with what is still in flight here behind it: silence is no guilt.
  void on_closed() { closed_ = true; }

  // The fault, once it is known: the arbiter when all answered or the time is over; others when it is silent.
  std::optional<wire::Abort> take_fault(TimePoint now);
  [[nodiscard]] Deadline next_due() const { return due_; }

 private:
  [[nodiscard]] bool is_arbiter() const { return rank_ == members_.front(); }
  [[nodiscard]] wire::Abort blame() const;

  int rank_;
  std::vector<int> members_;
  std::vector<bool> answered_;
  std::vector<wire::Stuck> stuck_;
  std::vector<int> stuck_ranks_;
  bool closed_ = false;
  Deadline due_ = Deadline::never();
};

}  // namespace roundelay::negotiate
