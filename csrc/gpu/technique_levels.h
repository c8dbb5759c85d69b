// The levels of a group's GPUs that techniques see, beside the fabric of all other calls.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/gpu_runtime.h"
#include "collective/fabric.h"

namespace roundelay::gpu {

// One thread at a time. Empty at first.
class TechniqueLevels {
 public:
  using FabricPtr = std::unique_ptr<collective::Fabric>;

  // Goes over these levels of the CPU's fabric, of which the first is within the node, through host memory.
  void make(std::span<collective::Fabric* const> cpu, GpuRuntime& runtime, int device);
  // Returns the fabric within the node that goes through host memory.
  [[nodiscard]] collective::Fabric& staged_inside() { return *staged_.front(); }
  // Uses a faster one in its place, which may use it.
  void take_inside(FabricPtr faster);

  [[nodiscard]] bool empty() const { return fabrics_.empty(); }
  [[nodiscard]] std::span<collective::Fabric* const> fabrics() const { return fabrics_; }
  [[nodiscard]] bool poisoned() const;
  // These do what those of DeviceCalls do.
  [[nodiscard]] Status health();
  void give_up(const Status& cause);

 private:
  std::vector<FabricPtr> staged_;
  FabricPtr faster_;  // null: there is none
  std::vector<collective::Fabric*> fabrics_;
};

}  // namespace roundelay::gpu
