// A lane's part on a GPU: a stream of its own, in which packing, collectives and unpacking follow each other.
//
// The stream waits for what the batch's tensors wait for, and whoever wants the results makes a stream wait
// for this one; the host only enqueues. The lane's stream is opened by its first batch on a GPU, on the
// device where that lies.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "runtime/gpu/device_clock.h"
#include "runtime/gpu/gpu_fabric.h"
#include "runtime/gpu/module.h"
#include "runtime/lane/device_buffers.h"

namespace roundelay::runtime {

class GpuBuffers final : public DeviceBuffers {
 public:
  // `cpu`: of the same group; outlives this.
  GpuBuffers(GpuParts parts, collective::Fabric& cpu, GpuFabricOptions options);
  ~GpuBuffers() override;

  // What the batch's tensors are behind, the stream is behind, too. Before anything else of a batch.
  [[nodiscard]] Status take_in(const Batch& batch);
  // The point behind all that was enqueued until now.
  [[nodiscard]] Result<GpuEventPtr> mark();
  // The same for the timeline, whose faults are nobody's: then there is no point in it.
  [[nodiscard]] DeviceClock::Mark mark_time();
  [[nodiscard]] DeviceClock& clock() { return clock_; }

  [[nodiscard]] collective::Fabric& fabric() override { return fabric_; }
  [[nodiscard]] GpuStream stream() const override { return stream_; }
  [[nodiscard]] Status copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  [[nodiscard]] Result<std::byte*> fusion_buffer(std::size_t bytes) override;
  [[nodiscard]] Status pack(std::span<const fuse::PackItem> items, std::byte* buffer) override;
  [[nodiscard]] Status unpack(std::span<const fuse::UnpackItem> items, const std::byte* buffer) override;
  [[nodiscard]] Result<std::byte*> result(const Piece& piece,
                                          const std::vector<std::int64_t>& shape) override;

 private:
  struct Buffer {
    GpuMemory memory;
    std::size_t bytes = 0;
  };
  // Memory that was replaced, until the device is past its last use.
  struct Retired {
    GpuMemory memory;
    GpuEventPtr last_use;
  };

  [[nodiscard]] Status open(int device);
  [[nodiscard]] DeviceClock::Mark mark_time_in(GpuStream stream);
  [[nodiscard]] Status grow(Buffer& buffer, std::size_t bytes);

  const GpuParts parts_;
  GpuFabric fabric_;
  int device_ = -1;
  GpuStream stream_ = nullptr;
  GpuStream idle_ = nullptr;  // of the clock
  DeviceClock clock_;
  std::array<Buffer, kDepth> buffers_;
  std::size_t next_ = 0;
  std::deque<Retired> retired_;
  std::vector<kernels::GpuCopy> copies_;  // of the last call; its capacity is used again
};

}  // namespace roundelay::runtime
