// The local work of algorithms on a device's memory: kernels and copies in the fabric's stream.
#pragma once

#include <memory>
#include <vector>

#include "collective/device/device_stream.h"
#include "collective/fabric.h"
#include "collective/program/local_work.h"
#include "kernels/gpu.h"

namespace roundelay::collective::device {

// One thread at a time. Errors go to the stream, and the next transfer reports them. It cannot carry out
// Adasum (nor does an algorithm ask it to).
class DeviceWork final : public LocalWork {
 public:
  // `kernels` outlives it.
  DeviceWork(std::shared_ptr<DeviceStream> stream, kernels::GpuKernels& kernels,
             std::shared_ptr<FabricCounters> counters)
      : stream_(std::move(stream)), kernels_(kernels), counters_(std::move(counters)) {}

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  void scale_copy(std::byte* to, const std::byte* from, std::size_t count, DType dtype, Scale scale) override;
  void cast(std::byte* to, DType to_type, const std::byte* from, DType from_type, std::size_t count) override;
  void reduce(const Reduction& how, std::byte* own, const std::byte* incoming, std::size_t count) override;
  void reduce_parts(const Reduction& how, std::byte* to, std::span<const void* const> parts,
                    std::size_t count) override;
  void finish_single(const Call& call) override;

 private:
  void copy_elements(const kernels::GpuCopy& item, Scale scale);
  void sum(const Reduction& how, std::byte* to, std::span<const std::byte* const> parts, std::size_t count);

  const std::shared_ptr<DeviceStream> stream_;
  kernels::GpuKernels& kernels_;
  const std::shared_ptr<FabricCounters> counters_;
  std::vector<const std::byte*> parts_;
};

}  // namespace roundelay::collective::device
