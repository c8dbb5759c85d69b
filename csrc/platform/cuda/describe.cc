#include "platform/cuda/describe.h"

#include <cuda.h>

#include <cctype>
#include <cstdio>
#include <cstring>
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

// Versions of CUDA whose cuDeviceGetUuid() names the GPU, also where the device is a part of one (MIG), and
// those whose function names the part.
constexpr unsigned kWholeGpus = 9020, kPartsOfGpus = 11040;

Result<CUuuid> uuid_of(int device, unsigned version) {
  using GetUuid = CUresult (*)(CUuuid*, CUdevice);
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  ROUNDELAY_RETURN_IF_ERROR(
      check(cudaGetDriverEntryPointByVersion("cuDeviceGetUuid", &entry, version, cudaEnableDefault, &found),
            "cudaGetDriverEntryPointByVersion"));
  if (entry == nullptr) return Status::unavailable("the NVIDIA driver is older than CUDA 11.4");
  CUuuid uuid{};
  const CUresult result = reinterpret_cast<GetUuid>(entry)(&uuid, device);
  if (result != CUDA_SUCCESS) {
    return Status::unavailable("cuDeviceGetUuid of device " + std::to_string(device) + ": error " +
                               std::to_string(result));
  }
  return uuid;
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

Result<std::string> describe_identity(int device) {
  const Result<CUuuid> whole = uuid_of(device, kWholeGpus), own = uuid_of(device, kPartsOfGpus);
  if (!whole.ok()) return whole.status();
  if (!own.ok()) return own.status();
  const bool is_part = std::memcmp(whole->bytes, own->bytes, sizeof own->bytes) != 0;
  std::string text = is_part ? "MIG-" : "GPU-";
  for (std::size_t i = 0; i < sizeof own->bytes; ++i) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned>(static_cast<unsigned char>(own->bytes[i])));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += hex;
  }
  return text;
}

}  // namespace roundelay::platform::cuda
