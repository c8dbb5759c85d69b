// Converts CUDA's errors, and sets the calling thread's current device.
#pragma once

#include <cuda_runtime.h>

#include "base/gpu.h"
#include "base/status.h"

namespace roundelay::platform::cuda {

// Returns OK, or an error: "cudaMalloc: out of memory". Clears the CUDA runtime's last error, so that no
// later call reports it again.
[[nodiscard]] Status check(cudaError_t error, const char* call);

// Returns CUDA's type for the same stream.
inline cudaStream_t native(GpuStream stream) { return reinterpret_cast<cudaStream_t>(stream); }

// Makes `device` the calling thread's current device, and restores the earlier one at the end of the scope.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  // Returns an error if there is no such device.
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  int before_ = -1;  // the device to restore; -1: none
  Status status_;
};

// Returns the device's number of multiprocessors.
[[nodiscard]] Result<int> multiprocessors(int device);

}  // namespace roundelay::platform::cuda
