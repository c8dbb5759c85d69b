#include "runtime/startup/device_medium.h"

#include <utility>

#include "gpu/choice.h"

namespace roundelay::runtime {

Result<std::shared_ptr<collective::DeviceMedium>> make_device_medium(Backend* backend, const Config& config,
                                                                     const AlgorithmChoice& algorithms,
                                                                     const Group& group) {
  if (gpu::gpu_fabric_wish(config.gpu_fabric) != gpu::GpuFabricWish::kMpi || group.size() == 1) {
    return std::shared_ptr<collective::DeviceMedium>();
  }
  auto medium = backend->device_medium(group, config);
  if (!medium.ok()) return medium.status();
  medium->select = algorithms.on_device();
  return std::make_shared<collective::DeviceMedium>(std::move(medium).value());
}

}  // namespace roundelay::runtime
