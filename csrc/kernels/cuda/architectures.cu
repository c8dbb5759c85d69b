// What nvcc has compiled the kernels for.
#include "kernels/cuda/architectures.h"

#include "kernels/cuda/kernels.h"
#include "platform/cuda/device.h"

namespace roundelay::kernels::cuda {
namespace {

constexpr int kCompiled[] = {__CUDA_ARCH_LIST__};
constexpr Architectures kArchitectures{kCompiled, ROUNDELAY_CUDA_NEWER != 0};

}  // namespace

std::string CudaKernels::compiled_for() const { return text_of(kArchitectures); }

Status CudaKernels::fits(int device) const {
  int major = 0, minor = 0;
  ROUNDELAY_RETURN_IF_ERROR(platform::cuda::check(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute"));
  ROUNDELAY_RETURN_IF_ERROR(platform::cuda::check(
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute"));
  const int architecture = 100 * major + 10 * minor;
  return covers(kArchitectures, architecture) ? Status{} : unfit(device, architecture, kArchitectures);
}

}  // namespace roundelay::kernels::cuda
