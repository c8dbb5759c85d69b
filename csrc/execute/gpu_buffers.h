// A lane's buffers and stream on a GPU. Packing, collectives and unpacking follow each other in the stream.
//
// The host only enqueues. The lane's stream waits for each tensor's `ready` event; a caller who wants the
// results makes its stream wait for the batch's event. The lane's first batch on a GPU opens the stream on
// the device of its tensors.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "compress/gpu_arithmetic.h"
#include "execute/device_buffers.h"
#include "gpu/device_clock.h"
#include "gpu/gpu_fabric.h"
#include "gpu/module.h"

namespace roundelay::execute {

class GpuBuffers final : public DeviceBuffers {
 public:
  GpuBuffers(gpu::GpuParts parts, collective::Fabric& host, FramePool& frames, gpu::GpuFabricOptions options);
  ~GpuBuffers() override;

  // Makes the lane's stream wait until the batch's inputs are complete and its outputs free. Call it first
  // for each batch. Errors: kInvalidArgument (another device than the lane's), kAborted, kUnavailable.
  [[nodiscard]] Status take_in(const Batch& batch);
  // Returns an event after all work that was enqueued in the lane's stream until now. Errors: kAborted.
  [[nodiscard]] Result<GpuEventPtr> mark();
  // Marks the stream with a time, for the timeline. After an error the mark has no point; the lane goes on.
  [[nodiscard]] gpu::DeviceClock::Mark mark_time();
  // Returns the clock that translates such marks.
  [[nodiscard]] gpu::DeviceClock& clock() { return clock_; }

  // Does the same as in GpuFabric.
  [[nodiscard]] bool device_never_waits() const { return fabric_.device_never_waits(); }

  [[nodiscard]] collective::Fabric& fabric() override { return fabric_; }
  [[nodiscard]] bool knows_levels() const override { return fabric_.knows_levels(); }
  [[nodiscard]] GpuStream stream() const override { return stream_; }
  [[nodiscard]] Status copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  [[nodiscard]] Result<std::byte*> fusion_buffer(std::size_t bytes) override;
  [[nodiscard]] Status pack(std::span<const PackItem> items, std::byte* buffer) override;
  [[nodiscard]] Status unpack(std::span<const UnpackItem> items, const std::byte* buffer) override;
  [[nodiscard]] Result<std::byte*> result(const BatchTensor& tensor,
                                          const std::vector<std::int64_t>& shape) override;
  // Call it after take_in(), which opens the stream.
  [[nodiscard]] compress::Arithmetic& math() override { return *math_; }
  [[nodiscard]] Status reserve(Scratch& scratch, std::size_t bytes) override;

 private:
  // Memory that a larger buffer replaced. It is freed when the device has passed its last use.
  struct Retired {
    GpuMemory memory;
    GpuEventPtr last_use;
  };

  [[nodiscard]] Status open(int device);
  [[nodiscard]] gpu::DeviceClock::Mark mark_time_in(GpuStream stream);

  const gpu::GpuParts parts_;
  gpu::GpuFabric fabric_;
  int device_ = -1;  // -1: not opened
  GpuStream stream_ = nullptr;
  GpuStream idle_ = nullptr;  // has no work, for the clock's references; null until the timeline is on
  gpu::DeviceClock clock_;
  std::optional<compress::GpuArithmetic> math_;  // set when the stream is open
  std::array<Scratch, kDepth> buffers_;
  std::size_t next_ = 0;  // the buffer that the next batch gets
  std::deque<Retired> retired_;
  std::vector<kernels::GpuCopy> copies_;  // the last pack()'s or unpack()'s; kept for its capacity
};

}  // namespace roundelay::execute
