// Describes this process's GPU as torch sees it: the device of tensors, and the streams that callers use.
//
// The code uses only torch's device-generic interface. It therefore serves CUDA and the tests' fake device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "base/gpu_runtime.h"
#include "base/status.h"
#include "kernels/gpu.h"

namespace roundelay::adapter {

// A stream of torch that was current when this object was made: when an operation was submitted.
class CallerStream {
 public:
  // Takes the calling thread's current stream of the device. `runtime` outlives this object.
  CallerStream(GpuRuntime& runtime, c10::Device device);

  [[nodiscard]] int device_index() const { return stream_.device_index(); }
  [[nodiscard]] GpuStream native() const;
  // Records an event after all work that the stream has now. Errors: those of base/gpu_runtime.h.
  [[nodiscard]] Result<GpuEventPtr> mark() const;
  // Allocates a tensor from torch's allocator, for use in this stream. Earlier users of the memory are done
  // when the stream reaches the next mark(). Any thread may call this, without the GIL. Throws as torch does.
  [[nodiscard]] at::Tensor allocate(at::IntArrayRef shape, at::ScalarType type) const;

  // Returns the device's current stream on the calling thread.
  [[nodiscard]] c10::Stream current() const;
  // Makes the current stream wait for `event`. Errors: those of base/gpu_runtime.h.
  [[nodiscard]] Status hold_back_current(const GpuEvent& event) const;
  // Returns whether this stream is the calling thread's current one.
  [[nodiscard]] bool is_current() const { return current() == stream_; }

 private:
  GpuRuntime* runtime_;
  c10::Stream stream_;
};

// Tells torch's allocator that its device's current stream uses the memory of a dense or sparse tensor, too.
// Does nothing on the CPU.
void lend_to_current_stream(const at::Tensor& tensor);

// Finds the stream of an operation. Thread-safe.
class Accelerator {
 public:
  // Lets `runtime` and `kernels` serve torch's devices of `type` from now on; without them GPUs are refused.
  // Both outlive this object.
  void serve(GpuRuntime& runtime, kernels::GpuKernels& kernels, c10::DeviceType type) EXCLUDES(mutex_);

  // Returns the device's current stream; nothing for the CPU. `label` names the tensor in messages. Errors:
  // kInvalidArgument (no runtime serves the device, or a graph is being captured from the stream), with the
  // cure, and those of base/gpu_runtime.h.
  Result<std::optional<CallerStream>> stream_for(const c10::Device& device, const std::string& label)
      EXCLUDES(mutex_);
  // Returns the arithmetic of the devices; null: none are served.
  kernels::GpuKernels* kernels() EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  GpuRuntime* runtime_ GUARDED_BY(mutex_) = nullptr;
  kernels::GpuKernels* kernels_ GUARDED_BY(mutex_) = nullptr;
  c10::DeviceType type_ GUARDED_BY(mutex_) = c10::kCUDA;
};

}  // namespace roundelay::adapter
