// Scratch memory on the device for a fabric's calls, one at a time. It is kept, as large as the largest of
// them needed.
#pragma once

#include <cstddef>
#include <vector>

#include "base/gpu_runtime.h"

namespace roundelay::collective::nccl {

// One thread at a time.
class DeviceScratch {
 public:
  DeviceScratch(GpuRuntime& runtime, int device) : runtime_(runtime), device_(device) {}
  // Leaks memory that the device still uses.
  ~DeviceScratch();
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;

  // Returns memory for work in `stream`, and makes the stream wait for the work of the call before. Errors:
  // kUnavailable (no memory).
  [[nodiscard]] Result<std::byte*> acquire(std::size_t bytes, GpuStream stream);
  // Takes the memory back. Call it when all work that uses it is enqueued to `stream`.
  [[nodiscard]] Status release(GpuStream stream);

 private:
  struct Block {
    GpuMemory memory;
    std::size_t bytes = 0;
    bool taken = false;    // true from acquire() to release()
    GpuEventPtr last_use;  // null: never used
    // Returns whether the device is done with the memory.
    [[nodiscard]] bool idle() const;
  };
  GpuRuntime& runtime_;
  const int device_;
  Block block_;
  std::vector<Block> outgrown_;  // kept until the device is done with them
};

}  // namespace roundelay::collective::nccl
