// NCCL makes a communicator on the device that is current for the calling thread.
#pragma once

#include "base/status.h"

namespace roundelay::platform::nccl {

// Makes a device's primary context (the one that the CUDA runtime uses) the thread's, until its end.
class CurrentDevice {
 public:
  // kUnavailable: no driver, no such device.
  [[nodiscard]] static Result<CurrentDevice> make(int device);
  CurrentDevice(CurrentDevice&& other) noexcept;
  CurrentDevice& operator=(CurrentDevice&&) = delete;
  ~CurrentDevice();

 private:
  explicit CurrentDevice(int handle) : handle_(handle) {}
  int handle_;  // -1: moved away
};

}  // namespace roundelay::platform::nccl
