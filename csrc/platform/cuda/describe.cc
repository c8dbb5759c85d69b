#include "platform/cuda/describe.h"

#include <cuda.h>

#include <cctype>
#include <cstdio>
#include <fstream>

#include "platform/cuda/device.h"

namespace roundelay::platform::cuda {
namespace {

std::string dotted(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Returns the kernel module's version, which no call of the runtime gives. In the first line of the module's
// file it is the only word that begins with a digit.
std::string driver_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  for (std::size_t begin = 0; begin < line.size();) {
    const std::size_t end = std::min(line.find(' ', begin), line.size());
    std::string word = line.substr(begin, end - begin);
    if (!word.empty() && std::isdigit(static_cast<unsigned char>(word.front())) != 0) return word;
    begin = end + 1;
  }
  return {};
}

}  // namespace

Result<std::string> describe() {
  int runtime = 0, driver = 0;
  ROUNDELAY_RETURN_IF_ERROR(check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion"));
  ROUNDELAY_RETURN_IF_ERROR(check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion"));
  if (driver == 0) return Status::unavailable("this machine has no NVIDIA driver");
  const std::string version = driver_version();
  return "CUDA " + dotted(runtime) + ", driver " + (version.empty() ? "for CUDA " + dotted(driver) : version);
}

// Asks the driver, which names a part of a GPU (MIG) itself; the runtime names the whole GPU.
Result<std::string> describe_identity(int device) {
  using GetUuid = CUresult (*)(CUuuid*, CUdevice);
  constexpr unsigned kWithParts = 11040;
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  ROUNDELAY_RETURN_IF_ERROR(check(
      cudaGetDriverEntryPointByVersion("cuDeviceGetUuid", &entry, kWithParts, cudaEnableDefault, &found),
      "cudaGetDriverEntryPointByVersion"));
  if (entry == nullptr) return Status::unavailable("the NVIDIA driver is older than CUDA 11.4");
  CUuuid uuid{};
  const CUresult result = reinterpret_cast<GetUuid>(entry)(&uuid, device);
  if (result != CUDA_SUCCESS) {
    return Status::unavailable("cuDeviceGetUuid of device " + std::to_string(device) + ": error " +
                               std::to_string(result));
  }
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += hex;
  }
  return text;
}

}  // namespace roundelay::platform::cuda
