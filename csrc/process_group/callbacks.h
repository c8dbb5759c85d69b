// The futures of torch.distributed's calls, and a place for their callbacks.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <atomic>
#include <exception>
#include <vector>

namespace roundelay::process_group {

// The future of a call. Thread-safe. Callbacks never run on the thread that completes it, which moves bytes:
// they may wait for other calls, as those of the PowerSGD hook do.
class CallFuture {
 public:
  using Pointer = c10::intrusive_ptr<c10::ivalue::Future>;
  // device: of the results.
  explicit CallFuture(c10::Device device);

  // Returns the future. Who has it may add callbacks.
  Pointer get();
  // Completes it, at once if nobody has it. Called once.
  void complete(const std::exception_ptr& error, const std::vector<at::Tensor>& results);
  // Returns when the future is complete if somebody has it: after Work::wait() it is.
  void wait_if_given();

 private:
  enum class State : unsigned char { kUnknown, kGiven, kOver, kOverForOthers };
  std::atomic<State> state_{State::kUnknown};
  const Pointer future_;
};

}  // namespace roundelay::process_group
