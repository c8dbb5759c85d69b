// Checks whether a fabric really moves the memory of GPUs: a library that claims it may be set up wrongly.
#pragma once

#include <cstddef>
#include <memory>

#include "base/gpu_runtime.h"
#include "collective/fabric.h"

namespace roundelay::collective {

// Gathers a few bytes of each member, and compares them with those that the host knows. One thread at a time.
class DeviceProbe {
 public:
  // `fabric` and `runtime` outlive it. `device` is the fabric's.
  DeviceProbe(Fabric& fabric, GpuRuntime& runtime, int device)
      : fabric_(fabric), runtime_(runtime), device_(device) {}
  ~DeviceProbe();
  DeviceProbe(const DeviceProbe&) = delete;
  DeviceProbe& operator=(const DeviceProbe&) = delete;

  // Starts the all-gather. Every member calls it. Errors: those of Fabric::start() and base/gpu_runtime.h.
  Status begin(Deadline deadline, const AbortToken* abort);
  // Moves it on without blocking. Returns true when the right bytes of all members have come. Errors:
  // kUnavailable (other bytes have come); the fabric's.
  Result<bool> test();

 private:
  static constexpr std::size_t kBytes = 64;  // the number of each member's bytes
  static std::byte byte_of(std::size_t member) {
    return std::byte{static_cast<unsigned char>(member * 37 + 11)};
  }
  [[nodiscard]] std::size_t members() const { return static_cast<std::size_t>(fabric_.group().size()); }
  Status fetch();
  [[nodiscard]] Status compare() const;

  Fabric& fabric_;
  GpuRuntime& runtime_;
  const int device_;
  GpuStream stream_ = nullptr;
  GpuMemory memory_, pinned_;
  std::unique_ptr<PendingCall> call_;  // null: it is over
  GpuEventPtr fetched_;                // the bytes are in pinned_
};

}  // namespace roundelay::collective
