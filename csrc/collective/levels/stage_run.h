// Keeps the steps of one stage of one allreduce that are in progress, and counts those that have ended.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "collective/fabric.h"
#include "collective/levels/schedule.h"

namespace roundelay::collective::levels {

// The work of a stage on one chunk: it scatters or gathers it. The last stage does both in one step, an
// allreduce.
struct StageStep {
  std::uint64_t chunk = 0;
  bool gathers = false;
};

// One thread at a time.
class StageRun {
 public:
  // One call of a step. `group` is that of the call's fabric, and outlives it.
  struct StepCall {
    std::unique_ptr<PendingCall> pending;  // null: it is over
    const Group* group;
  };
  using StepCalls = std::vector<StepCall>;

  // At most `most` steps are in progress at once. `last`: it is the last stage.
  StageRun(StepOrder order, std::uint64_t most, bool last) : order_(order), most_(most), last_(last) {}
  StageRun(StageRun&&) = default;
  StageRun& operator=(StageRun&&) = default;

  // Returns whether a step is left and may be in progress beside those that are.
  [[nodiscard]] bool has_next() const {
    return (last_ ? order_.scatters_next() : !order_.over()) && steps() < most_;
  }
  [[nodiscard]] StageStep next() const { return {order_.next(), !order_.scatters_next()}; }
  // Marks the next step as begun. `calls`: one for each share that has bytes.
  void begin(StepCalls calls);
  // Tests all calls. Returns how many more steps have ended, or the first error. A step ends after all those
  // before it.
  Result<std::uint64_t> test();

  // Return how many chunks have been scattered, and gathered: those below that number.
  [[nodiscard]] std::uint64_t scattered() const { return ended_[kScatters]; }
  [[nodiscard]] std::uint64_t gathered() const { return ended_[last_ ? kScatters : kGathers]; }
  [[nodiscard]] bool idle() const { return steps() == 0; }
  // Returns the world rank that a call waits for, or -1.
  [[nodiscard]] int waiting_for() const;
  // Returns the oldest call, or null.
  [[nodiscard]] PendingCall* first() const;

 private:
  static constexpr std::size_t kScatters = 0, kGathers = 1;

  [[nodiscard]] std::size_t steps() const { return begun_[kScatters].size() + begun_[kGathers].size(); }

  StepOrder order_;
  std::uint64_t most_;
  bool last_;
  std::array<std::deque<StepCalls>, 2> begun_;  // each in the order of chunks
  std::array<std::uint64_t, 2> ended_{};
};

}  // namespace roundelay::collective::levels
