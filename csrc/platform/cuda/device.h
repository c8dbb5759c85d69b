// CUDA's errors as ours, and its current device, which is one of the calling thread.
#pragma once

#include <cuda_runtime.h>

#include "base/gpu.h"
#include "base/status.h"

namespace roundelay::platform::cuda {

// "cudaMalloc: out of memory". Takes the error off the runtime, so that a later call of anybody does not find
// it.
[[nodiscard]] Status check(cudaError_t error, const char* call);

inline cudaStream_t native(GpuStream stream) { return reinterpret_cast<cudaStream_t>(stream); }

// `device` is the current one until the end of the scope; then the one before again.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  int before_ = -1;  // to go back to
  Status status_;
};

[[nodiscard]] Result<int> multiprocessors(int device);

}  // namespace roundelay::platform::cuda
