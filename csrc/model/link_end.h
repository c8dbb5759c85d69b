// One end of a link, over which transfers leave.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <queue>
#include <vector>

#include "model/job.h"

namespace roundelay::model {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

// Time goes on by the calls' `now`, which never goes back.
class LinkEnd {
 public:
  LinkEnd(double bandwidth, Sharing sharing) : bandwidth_(bandwidth), sharing_(sharing) {}

  // Begins a transfer, which stands for `weight` equal ones of so many bytes each. `owner` names it.
  void add(double now, std::int64_t owner, double bytes, double weight);
  // Returns when the next transfer ends if no other is added; kNever: none is under way.
  [[nodiscard]] double next_end() const;
  // Ends that transfer at its time, and returns its owner. Precondition: next_end() is `now`.
  std::int64_t finish(double now);
  // Grows with every change: an event with an older number is out of date.
  [[nodiscard]] std::uint64_t version() const { return version_; }

  [[nodiscard]] double bytes() const { return bytes_; }
  [[nodiscard]] double busy() const { return busy_; }

 private:
  struct Flow {
    double end = 0;  // fair: the share at which it has all; FIFO: its seconds
    double weight = 0;
    std::int64_t owner = 0;
    std::uint64_t number = 0;
    friend bool operator>(const Flow& a, const Flow& b) {
      return a.end != b.end ? a.end > b.end : a.number > b.number;
    }
  };
  void advance(double now);

  double bandwidth_;
  Sharing sharing_;
  std::priority_queue<Flow, std::vector<Flow>, std::greater<>> fair_{};
  std::deque<Flow> fifo_{};
  double weight_ = 0;  // of all fair flows
  double share_ = 0;   // bytes that a flow of weight 1 would have been given since the beginning
  double at_ = 0;      // the time of share_; of FIFO: when the first flow began
  double bytes_ = 0, busy_ = 0;
  std::uint64_t version_ = 0;
};

}  // namespace roundelay::model
