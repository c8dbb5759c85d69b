// Device memory that a fabric's calls work in, one at a time: kept, and as large as the largest of them
// needed.
#pragma once

#include <cstddef>
#include <vector>

#include "base/gpu_runtime.h"

namespace roundelay::collective::nccl {

// One thread at a time.
class DeviceScratch {
 public:
  DeviceScratch(GpuRuntime& runtime, int device) : runtime_(runtime), device_(device) {}
  ~DeviceScratch();
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;

  // For work in `stream`, behind that of the call before. kUnavailable: no memory.
  [[nodiscard]] Result<std::byte*> take(std::size_t bytes, GpuStream stream);
  // All that uses it is enqueued.
  [[nodiscard]] Status give(GpuStream stream);

 private:
  struct Block {
    GpuMemory memory;
    std::size_t bytes = 0;
    bool taken = false;    // not all that uses it is enqueued
    GpuEventPtr last_use;  // null: never used
    [[nodiscard]] bool idle() const;
  };
  GpuRuntime& runtime_;
  const int device_;
  Block block_;
  std::vector<Block> outgrown_;  // until the device is done with them
};

}  // namespace roundelay::collective::nccl
