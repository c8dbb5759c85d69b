// One staged call, in progress.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "base/gpu_runtime.h"
#include "collective/fabric.h"
#include "collective/staged/pinned.h"
#include "collective/staged/plan.h"

namespace roundelay::collective::staged {

// What the calls of one member work with.
struct Host {
  Fabric& cpu;
  GpuRuntime& runtime;
  const int device;
  const std::size_t piece_bytes;
  PinnedBlocks blocks{runtime, piece_bytes};
};

class Passage {
 public:
  // Both outlive it. `call` has been checked; the passages of one host are carried out one after the other.
  Passage(Host& host, const Call& call);
  // In the middle: memory that the CPU's medium may still write to is given up for good.
  ~Passage();
  Passage(const Passage&) = delete;
  Passage& operator=(const Passage&) = delete;

  // Moves it on without blocking. True: it is over, but for what the device still has to do.
  Result<bool> advance();
  // Whether a step has begun or ended since this was asked last.
  bool moved() { return std::exchange(moved_, false); }
  // The call of the CPU's fabric in progress. Null: the device is waited for.
  [[nodiscard]] Pending* crossing() const { return crossing_.get(); }

 private:
  struct Coming {
    Step step;
    PinnedBlock* block = nullptr;  // null: no bytes
    GpuEventPtr there;             // the bytes have come down; null: none had to
  };
  Status come_down();
  Status fetch(Coming& coming);
  Status cross();
  [[nodiscard]] Status device_works() const;
  [[nodiscard]] Result<bool> begin(const Coming& coming);
  Status send_up(const Coming& coming);

  Host& host_;
  const Call& call_;
  const Plan plan_;
  std::deque<Coming> coming_;          // on their way down, or there; the first one perhaps crossing
  std::unique_ptr<Pending> crossing_;  // of the first
  std::uint64_t begun_ = 0, over_ = 0;
  bool moved_ = false;
};

}  // namespace roundelay::collective::staged
