// Sets the calling thread's current device for NCCL, which makes each communicator on the current device.
#pragma once

#include "base/status.h"

namespace roundelay::platform::nccl {

// Makes a device's primary context (the CUDA runtime uses the same one) current for this thread until it is
// destroyed.
class CurrentDevice {
 public:
  // Errors: kUnavailable (no driver, no such device).
  [[nodiscard]] static Result<CurrentDevice> make(int device);
  CurrentDevice(CurrentDevice&& other) noexcept;
  CurrentDevice& operator=(CurrentDevice&&) = delete;
  ~CurrentDevice();

 private:
  explicit CurrentDevice(int handle) : handle_(handle) {}
  int handle_;  // -1: moved from
};

}  // namespace roundelay::platform::nccl
