// The GPU of this process as torch has it: its tensors' device, and the streams that callers work on.
//
// Of torch's device-generic part only, so that it is one code for CUDA and for the fake device of the tests.
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

namespace roundelay::adapter {

// One operation's stream: the one that was current where it was submitted.
class CallerStream {
 public:
  CallerStream(GpuRuntime& runtime, c10::Device device);

  [[nodiscard]] int device_index() const { return stream_.device_index(); }
  // The point behind all that is in the stream now. Errors: as GpuRuntime.
  [[nodiscard]] Result<GpuEventPtr> mark() const;
  // Memory of the stream, as torch allocates there; whoever has used it before is done behind its mark().
  // From any thread, without the GIL. Throws as torch does.
  [[nodiscard]] at::Tensor allocate(const std::vector<std::int64_t>& shape, at::ScalarType type) const;

  // What is current on the calling thread.
  [[nodiscard]] c10::Stream current() const;
  // What is enqueued there from now on runs behind `event`.
  [[nodiscard]] Status hold_back_current(const GpuEvent& event) const;
  [[nodiscard]] bool is_current() const { return current() == stream_; }
  // The current stream works on it, too: its memory is not given away before that is done.
  void lend_to_current(const at::Tensor& tensor) const;

 private:
  GpuRuntime* runtime_;
  c10::Stream stream_;
};

// Thread-safe.
class Accelerator {
 public:
  // From now on `runtime` serves torch's devices of `type`.
  void serve(GpuRuntime& runtime, c10::DeviceType type) EXCLUDES(mutex_);

  // Nothing on the CPU. `label` is what messages call the tensor. Errors: kInvalidArgument: a device that is
  // not served, with the cure.
  Result<std::optional<CallerStream>> stream_for(const c10::Device& device, const std::string& label)
      EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  GpuRuntime* runtime_ GUARDED_BY(mutex_) = nullptr;
  c10::DeviceType type_ GUARDED_BY(mutex_) = c10::kCUDA;
};

}  // namespace roundelay::adapter
