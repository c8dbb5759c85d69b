#include "gradients/producers.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace roundelay::gradients {

Status Producers::note(const at::Tensor& tensor, adapter::Accelerator& accelerator) {
  const c10::Device device = tensor.device();
  const bool known = std::any_of(streams_.begin(), streams_.end(), [&](const adapter::CallerStream& stream) {
    return stream.device_index() == device.index() && stream.is_current();
  });
  if (known || device.is_cpu()) return {};
  const Result<std::optional<adapter::CallerStream>> stream = accelerator.stream_for(device, "a gradient");
  if (!stream.ok()) return stream.status();
  streams_.push_back(**stream);
  return {};
}

Status Producers::gather() {
  for (const adapter::CallerStream& stream : std::exchange(streams_, {})) {
    if (stream.is_current()) continue;
    const Result<GpuEventPtr> made = stream.mark();
    if (!made.ok()) return made.status();
    ROUNDELAY_RETURN_IF_ERROR(stream.hold_back_current(**made));
  }
  return {};
}

}  // namespace roundelay::gradients
