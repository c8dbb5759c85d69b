// One process's way to its accelerators: streams, events, memory and copies. A thin interface, so that the
// logic above it runs without a GPU: platform/cuda has CUDA's, tests have a fake device whose streams run
// late.
//
// Thread-safe. No call waits for the device, but for those that say so. Errors: kUnavailable (no memory, no
// such device), kAborted (the device failed; every later call may fail alike).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/gpu.h"
#include "base/status.h"

namespace roundelay {

// Bytes that are given back when their last owner goes: not before the last work on them is done.
using GpuMemory = std::shared_ptr<std::byte>;

class GpuRuntime {
 public:
  virtual ~GpuRuntime() = default;

  // "CUDA 13.0, driver 580.65"
  [[nodiscard]] virtual Result<std::string> description() = 0;
  [[nodiscard]] virtual Result<int> device_count() = 0;
  // The same string in every process for one physical device, and for no other.
  [[nodiscard]] virtual Result<std::string> identity(int device) = 0;

  // Of the highest priority; does not wait for the default stream, nor is it waited for.
  [[nodiscard]] virtual Result<GpuStream> make_stream(int device) = 0;
  // What is enqueued is still done.
  virtual void free_stream(int device, GpuStream stream) = 0;
  // The point behind all that is in `stream` now. May outlive the stream.
  [[nodiscard]] virtual Result<GpuEventPtr> mark(int device, GpuStream stream) = 0;
  [[nodiscard]] virtual Result<GpuTimestampPtr> mark_time(int device, GpuStream stream) = 0;

  [[nodiscard]] virtual Result<GpuMemory> allocate(int device, std::size_t bytes) = 0;
  // Host memory that the device copies from and to while the host goes on.
  [[nodiscard]] virtual Result<GpuMemory> allocate_pinned(std::size_t bytes) = 0;
  // Between device memory and device or pinned memory, when it is the copy's turn in the stream.
  [[nodiscard]] virtual Status copy(int device, std::byte* to, const std::byte* from, std::size_t bytes,
                                    GpuStream stream) = 0;
  [[nodiscard]] virtual Status zero(int device, std::byte* to, std::size_t bytes, GpuStream stream) = 0;
  // Waits for the device: all that is in `stream` now is done. For tests, tools and the way out.
  [[nodiscard]] virtual Status drain(int device, GpuStream stream) = 0;
};

}  // namespace roundelay
