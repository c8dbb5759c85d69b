#include "process_group/device_copies.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "process_group/errors.h"

namespace roundelay::process_group {
namespace {

constexpr std::chrono::microseconds kBetweenLooks{20};

// Returns this thread's stream for copies. A stream that threads share would let groups wait for each other.
c10::Stream copy_stream(c10::Device device) {
  thread_local std::vector<c10::Stream> streams;
  const auto found = std::ranges::find(streams, device, &c10::Stream::device);
  if (found != streams.end()) return *found;
  return streams.emplace_back(
      c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, true));
}

template <typename Guard>
bool current_stream_is_captured(const Guard& guard, c10::Device device) {
  if constexpr (requires(c10::Stream stream) { guard.isStreamCapturing(stream); }) {
    return guard.isStreamCapturing(guard.getStream(device));
  }
  return false;
}

}  // namespace

c10::Device device_of(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& more) {
  std::optional<c10::Device> device;
  for (const auto* const list : {&tensors, &more}) {
    for (const at::Tensor& tensor : *list) {
      if (!device) device = tensor.device();
      if (tensor.device() == *device) continue;
      refuse("a call's tensors are on " + device->str() + " and on " + tensor.device().str() +
             "; bring them to one device");
    }
  }
  return device.value_or(at::kCPU);
}

bool is_captured(c10::Device device) {
  return !device.is_cpu() && current_stream_is_captured(c10::impl::VirtualGuardImpl(device.type()), device);
}

DeviceCopies::DeviceCopies(c10::Device device) : device_(device) {
  if (device.is_cpu()) return;
  before_.emplace(device.type());
  before_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

Status DeviceCopies::wait(Deadline deadline, const std::function<Status()>& stopped) const {
  while (!before_->query()) {
    if (deadline.passed()) {
      return Status::aborted(device_.str() + " has not computed the call's tensors within the call's time");
    }
    ROUNDELAY_RETURN_IF_ERROR(stopped());
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return {};
}

Status DeviceCopies::run(const std::function<void()>& copies, Deadline deadline,
                         const std::function<Status()>& stopped) {
  try {
    const at::NoGradGuard no_grad;
    // Inference tensors may be written to, though this thread is in no inference mode.
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    if (!before_) {
      if (copies) copies();
      return {};
    }
    ROUNDELAY_RETURN_IF_ERROR(wait(deadline, stopped));
    if (!copies) return {};
    const c10::Stream stream = copy_stream(device_);
    const c10::StreamGuard guard(stream);
    before_->block(stream);
    copies();
    stream.synchronize();
  } catch (const std::exception& error) {
    return Status::aborted("copying the call's tensors on " + device_.str() + " failed: " + error.what());
  }
  return {};
}

}  // namespace roundelay::process_group
