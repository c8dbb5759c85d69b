// One staged call, in progress.
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

// What the calls of one member work with.
struct StagedResources {
  Fabric& cpu;
  GpuRuntime& runtime;
  const int device;
  const std::size_t piece_bytes;
  PinnedBlocks blocks{runtime, piece_bytes};
};

class StagedCall {
 public:
  // Both outlive it. `call` has been checked; the calls of one member are carried out one after the other.
  StagedCall(StagedResources& resources, const Call& call);
  // In the middle: memory that the CPU's medium may still write to is given up for good.
  ~StagedCall();
  StagedCall(const StagedCall&) = delete;
  StagedCall& operator=(const StagedCall&) = delete;

  // Moves it on without blocking. True: it is over, but for what the device still has to do.
  Result<bool> advance();
  Status interrupted(CallWatch& watch) const;
  [[nodiscard]] int waiting_for() const { return crossing_ ? crossing_->waiting_for() : -1; }
  [[nodiscard]] bool crowded() const { return crossing_ && crossing_->crowded(); }
  Nap idle(Backoff& backoff);

 private:
  struct Coming {
    Step step;
    PinnedBlock* block = nullptr;  // null: no bytes
    GpuEventPtr done;              // the bytes have come down; null: none had to
  };
  Status come_down();
  Status fetch(Coming& coming);
  Status cross();
  [[nodiscard]] Status device_works() const;
  [[nodiscard]] Result<bool> begin(const Coming& coming);
  Status send_up(const Coming& coming);

  StagedResources& resources_;
  const Call& call_;
  const GpuStream stream_;
  const Plan plan_;
  std::deque<Coming> coming_;          // on their way down, or there; the first one perhaps crossing
  std::unique_ptr<Pending> crossing_;  // of the first; null: the device is waited for
  std::uint64_t begun_ = 0, over_ = 0;
  bool moved_ = false;  // a step has begun or ended since the last idle()
};

}  // namespace roundelay::collective::staged
