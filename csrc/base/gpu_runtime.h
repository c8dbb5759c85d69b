// A process's interface to its GPUs: streams, events, memory and copies. platform/cuda implements it with
// CUDA; tests implement it with a fake device, so that the layers above run without a GPU.
//
// `device` is the number of a device that this process sees, from 0. Callers need not make it current.
//
// Thread-safe. Only drain() and the calls that say so wait for the device. Errors: kUnavailable (no memory,
// no such device), kAborted (the device failed; all later calls may fail too).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/gpu.h"
#include "base/memory_place.h"
#include "base/status.h"

namespace roundelay {

// Device or pinned memory, released with its last owner. Owners must keep it until the last work on it is
// done.
using GpuMemory = std::shared_ptr<std::byte>;

class GpuRuntime : public PointerDriver {
 public:
  // Returns the versions: "CUDA 13.0, driver 580.65.06".
  [[nodiscard]] virtual Result<std::string> description() = 0;
  // Returns the number of devices that this process sees.
  [[nodiscard]] virtual Result<int> device_count() = 0;
  // Returns a name of the physical device: every process gets the same one, and no other device has it.
  [[nodiscard]] virtual Result<std::string> identity(int device) = 0;

  // Returns whether the host, and so any library, can read and write the device's memory as its own.
  [[nodiscard]] virtual bool host_reaches_memory() = 0;
  // Tells the listener from now on of all memory that is allocated or freed. False: the runtime does not see
  // all of it, and tells nothing.
  [[nodiscard]] virtual bool tell(std::shared_ptr<MemoryListener> listener) = 0;

  // Makes a stream of the highest priority. It and the default stream do not wait for each other.
  [[nodiscard]] virtual Result<GpuStream> make_stream(int device) = 0;
  // Releases the stream. The device still runs the work in it.
  virtual void free_stream(int device, GpuStream stream) = 0;
  // Returns whether a graph is being captured from the stream: what is enqueued then runs with the graph.
  [[nodiscard]] virtual Result<bool> captures(int device, GpuStream stream) = 0;
  // Records an event after all work that is in `stream` now. The event may outlive the stream.
  [[nodiscard]] virtual Result<GpuEventPtr> mark(int device, GpuStream stream) = 0;
  // Does the same with a timestamp.
  [[nodiscard]] virtual Result<GpuTimestampPtr> mark_time(int device, GpuStream stream) = 0;

  // Allocates device memory. May wait for the device.
  [[nodiscard]] virtual Result<GpuMemory> allocate(int device, std::size_t bytes) = 0;
  // Allocates host memory that the device can copy from and to asynchronously.
  [[nodiscard]] virtual Result<GpuMemory> allocate_pinned(std::size_t bytes) = 0;
  // Enqueues a copy between device memory and device or pinned memory.
  [[nodiscard]] virtual Status copy(int device, std::byte* to, const std::byte* from, std::size_t bytes,
                                    GpuStream stream) = 0;
  // Enqueues zeros for `bytes` bytes at `to`.
  [[nodiscard]] virtual Status zero(int device, std::byte* to, std::size_t bytes, GpuStream stream) = 0;
  // Waits until the device has run all work that is in `stream` now. For tests, tools and the shutdown.
  [[nodiscard]] virtual Status drain(int device, GpuStream stream) = 0;
};

}  // namespace roundelay
