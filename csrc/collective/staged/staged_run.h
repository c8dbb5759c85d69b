// Carries out one staged call.
//
// It is no Task (collective/task.h): a task waits for one call of a fabric at a time, and here the device
// copies pieces in both directions while the CPU's fabric has a call in progress.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "base/gpu_runtime.h"
#include "collective/call_watch.h"
#include "collective/fabric.h"
#include "collective/staged/pinned.h"
#include "collective/staged/plan.h"

namespace roundelay::collective::staged {

// The objects that the calls of one member use.
struct StagedResources {
  Fabric& cpu;
  GpuRuntime& runtime;
  const int device;
  const std::size_t piece_bytes;
  PinnedBlocks blocks{runtime, piece_bytes};
};

// One call on its way through pinned memory: pieces come down from the device, cross to the other members,
// and go up. One thread at a time. Errors: as the CPU's fabric and base/gpu_runtime.h.
class StagedRun {
 public:
  // Both outlive it. `call` has been checked. The calls of one member are carried out one after the other.
  StagedRun(StagedResources& resources, const Call& call);
  // Leaks the memory that the CPU's medium may still write to, if the call is not over.
  ~StagedRun();
  StagedRun(const StagedRun&) = delete;
  StagedRun& operator=(const StagedRun&) = delete;

  // Moves the call on without blocking. True: it is over for the host; the last copies are enqueued.
  Result<bool> advance();
  // Implements CallQueue's interrupted(). It watches only the time that the call waits for the GPU, because
  // the CPU's fabric watches its own calls.
  Status interrupted(CallWatch& watch) const;
  [[nodiscard]] int waiting_for() const { return crossing_ ? crossing_->waiting_for() : -1; }
  [[nodiscard]] bool crowded() const { return crossing_ && crossing_->crowded(); }
  Nap idle(Backoff& backoff);

 private:
  struct StartedStep {
    StagedStep step;
    PinnedBlock* block = nullptr;  // null: the step has no bytes
    GpuEventPtr done;              // reached when the bytes have come down; null: none have to
  };
  // Enqueues the copies down of steps for which there is pinned memory.
  Status fetch_all();
  Status fetch(StartedStep& started);
  // Starts and tests the CPU's call of the first step, and enqueues its copy up.
  Status cross();
  [[nodiscard]] Status device_works() const;
  [[nodiscard]] Result<bool> begin(const StartedStep& started);
  Status send_up(const StartedStep& started);

  StagedResources& resources_;
  const Call& call_;
  const GpuStream stream_;
  const StagedPlan plan_;
  std::deque<StartedStep> started_;        // steps that have begun and are not over
  std::unique_ptr<PendingCall> crossing_;  // the CPU's call of the first one; null: its bytes come down
  std::uint64_t begun_ = 0, over_ = 0;     // steps
  std::uint64_t moves_ = 0;                // grows when a step begins, begins to cross, or ends
  std::uint64_t moves_at_idle_ = 0;        // the value of moves_ at the last idle()
};

}  // namespace roundelay::collective::staged
