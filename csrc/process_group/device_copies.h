// Copies between a call's tensors and the host memory that it moves. The tensors may be on a device.
//
// The code uses only torch's device-generic interface. It therefore serves CUDA and the tests' fake device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <functional>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace roundelay::process_group {

// Returns the device of all these tensors; the CPU, if there are none. Throws ValueError if they are on
// several.
[[nodiscard]] c10::Device device_of(const std::vector<at::Tensor>& tensors,
                                    const std::vector<at::Tensor>& more = {});

// Returns whether a graph is being captured from the calling thread's current stream of the device. False if
// this version of torch cannot tell.
[[nodiscard]] bool is_captured(c10::Device device);

// The copies of one call. One thread at a time.
class DeviceCopies {
 public:
  // Takes note of all work that the calling thread's current stream of the device has now: after it the
  // tensors have their values, and nobody uses them.
  explicit DeviceCopies(c10::Device device);
  [[nodiscard]] c10::Device device() const { return device_; }

  // Waits until the device has done that work, carries out `copies` in a stream of its own, and waits until
  // the device has done them. Empty ones: waits alone. `stopped` ends the wait for the work. Errors: those of
  // `stopped`, and kAborted: the deadline has passed, or a copy has failed.
  Status run(const std::function<void()>& copies, Deadline deadline, const std::function<Status()>& stopped);

 private:
  Status wait(Deadline deadline, const std::function<Status()>& stopped) const;

  const c10::Device device_;
  std::optional<c10::Event> before_;  // none: the tensors are on the CPU
};

}  // namespace roundelay::process_group
