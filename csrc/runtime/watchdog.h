// The progress clock's judge: when a rank is stuck inside a collective, who is to blame?
//
// Whoever misses the progress deadline says so (wire::Stuck). Rank 0 then asks all ranks for a sign of life:
// a stopped process answers nothing, whereas one that merely waits for it does. Pure: messages and time in, a
// verdict out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "wire/messages.h"

namespace roundelay::runtime {

inline constexpr Duration kInquestTime = std::chrono::milliseconds(1000);
// How long a stuck rank waits for rank 0's verdict before it blames rank 0 itself.
inline constexpr Duration kVerdictPatience = std::chrono::milliseconds(2500);

class Watchdog {
 public:
  Watchdog(int rank, int size) : rank_(rank), answered_(static_cast<std::size_t>(size), false) {}

  // This rank or (on rank 0) a peer is stuck. True if an inquest begins: ping everybody (rank 0 only).
  bool on_stuck(int from, const wire::Stuck& stuck, TimePoint now);
  void on_sign_of_life(int from) { answered_[static_cast<std::size_t>(from)] = true; }

  // The fault, once it is known: rank 0 when all answered or the time is over; others when rank 0 is silent.
  std::optional<wire::Abort> take_verdict(TimePoint now);
  [[nodiscard]] Deadline next_due() const { return due_; }

 private:
  [[nodiscard]] wire::Abort blame() const;

  int rank_;
  std::vector<bool> answered_;
  std::vector<wire::Stuck> stuck_;
  std::vector<int> stuck_ranks_;
  Deadline due_ = Deadline::never();
};

}  // namespace roundelay::runtime
