// Finds the rank at fault when a collective makes no progress. Pure: the caller passes messages and the time,
// and sends what is asked for.
//
// A rank that misses the progress deadline reports it (wire::Stuck) to the arbiter, the first rank of the
// lane's group. The arbiter begins a liveness check: it pings all members. A stopped process does not answer,
// but a process that only waits for it does. Each lane has its own watchdog, so ranks outside the group are
// neither asked nor blamed. All ranks are world ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/group.h"
#include "wire/messages.h"

namespace roundelay::negotiate {

// How long the arbiter waits for answers to a liveness check.
inline constexpr Duration kLivenessCheckTime = std::chrono::milliseconds(1000);
// How long a stuck rank waits for the arbiter to name a fault. After that it blames the arbiter.
inline constexpr Duration kArbiterTimeout = std::chrono::milliseconds(2500);

// One thread at a time: the thread that steps the negotiator.
class Watchdog {
 public:
  // `group` is the lane's.
  explicit Watchdog(const Group& group)
      : rank_(group.world_rank()), members_(group.ranks), answered_(members_.size(), false) {}

  // Takes the report of a stuck rank: this one, or on the arbiter any member. Returns true if a liveness
  // check begins: the caller then pings all members. Only the arbiter returns true.
  bool on_stuck(int from, const wire::Stuck& stuck, TimePoint now);
  // Call it when `from` has answered a ping.
  void on_sign_of_life(int from);
  // Call it when the lane has had its last order. A member that has left is silent without being at fault.
  void on_closed() { closed_ = true; }

  // Returns the fault once it is known. The arbiter knows it when all members have answered or the time is
  // over. Other ranks blame the arbiter if they hear nothing from it for too long.
  std::optional<wire::Abort> take_fault(TimePoint now);
  // Returns the time at which take_fault() returns the fault at the latest.
  [[nodiscard]] Deadline next_due() const { return due_; }

 private:
  [[nodiscard]] bool is_arbiter() const { return rank_ == members_.front(); }
  [[nodiscard]] wire::Abort blame() const;

  int rank_;
  std::vector<int> members_;        // ascending
  std::vector<bool> answered_;      // one for each member
  std::vector<wire::Stuck> stuck_;  // reports, in the order in which they came
  std::vector<int> stuck_ranks_;    // their senders
  bool closed_ = false;
  Deadline due_ = Deadline::never();  // the fault is due then; never while no rank is stuck
};

}  // namespace roundelay::negotiate
