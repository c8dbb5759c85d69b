#include "gpu/gpu_info.h"

#include <string>

#include "base/log.h"
#include "gpu/gpu_fabric.h"

namespace roundelay::gpu {
namespace {

std::string why_not_mpi(GpuRuntime& runtime, const GpuFabricOptions& options) {
  if (options.medium == nullptr) return "the job has no MPI";
  const bool any_library = options.medium->state != nullptr && runtime.host_reaches_memory();
  return any_library ? "" : options.medium->why_not;
}

}  // namespace

Result<GpuInfo> own_gpu_info(const GpuParts& parts, int device, const GpuFabricOptions& options,
                             GpuRole role) {
  GpuInfo gpu_info;
  ROUNDELAY_RETURN_IF_ERROR(parts.kernels->fits(device));
  const Result<std::string> identity = parts.runtime->identity(device);
  if (!identity.ok()) return identity.status();
  identity->copy(gpu_info.identity.data(), gpu_info.identity.size() - 1);
  gpu_info.may_share = options.may_share ? 1 : 0;
  gpu_info.has_levels = role.has_levels ? 1 : 0;
  options.node.copy(gpu_info.node.data(), gpu_info.node.size() - 1);
  if (options.wish == GpuFabricWish::kMpi) {
    why_not_mpi(*parts.runtime, options).copy(gpu_info.why_not_mpi.data(), gpu_info.why_not_mpi.size() - 1);
  } else if (parts.nccl != nullptr && options.wish != GpuFabricWish::kStaged) {
    gpu_info.nccl_version = parts.nccl->version();
    for (std::size_t i = 0; i < role.names.size(); ++i) {
      if (!role.names[i]) continue;
      const Result<platform::NcclId> id = parts.nccl->make_id();
      if (!id.ok()) return id.status();
      gpu_info.ids[i] = *id;
    }
  } else if (!parts.why_no_nccl.empty() && options.wish != GpuFabricWish::kStaged) {
    log(LogLevel::kWarning, "no NCCL: " + parts.why_no_nccl);
  }
  return gpu_info;
}

}  // namespace roundelay::gpu
