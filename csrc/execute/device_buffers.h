// Brings the bytes of a batch to where a fabric can work on them, and back: in host memory at once, on a GPU
// by enqueueing to a stream. A batch's task uses the buffers of its device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/frame_pool.h"
#include "base/gpu.h"
#include "base/status.h"
#include "collective/fabric.h"
#include "compress/host_arithmetic.h"
#include "execute/batch.h"
#include "execute/fusion_buffer.h"
#include "execute/pack.h"

namespace roundelay::execute {

// The number of fusion buffers: the lane packs one batch while the fabric carries the one before it.
inline constexpr std::size_t kDepth = 2;

class TechniqueWorkspace;

// Memory of the same kind as the buffers.
struct Scratch {
  std::shared_ptr<std::byte> memory;
  std::size_t bytes = 0;
};

// One thread at a time: the holder of the lane's token. Errors: kUnavailable (no memory), kAborted (the
// device failed).
class DeviceBuffers {
 public:
  // `host` is the group's fabric for host memory, `frames` the memory for tasks. Both outlive this object.
  DeviceBuffers(collective::Fabric& host, FramePool& frames);
  virtual ~DeviceBuffers();
  DeviceBuffers(const DeviceBuffers&) = delete;
  DeviceBuffers& operator=(const DeviceBuffers&) = delete;

  // Returns the fabric for calls on host memory.
  [[nodiscard]] collective::Fabric& host_fabric() const { return host_; }
  // Returns the memory for the frames of tasks (collective/task.h).
  [[nodiscard]] FramePool& frames() const { return frames_; }
  // Returns the fabric for calls on this memory. It lives as long as this object.
  [[nodiscard]] virtual collective::Fabric& fabric() = 0;
  // Returns whether the fabric knows its levels. If not, a dense call makes it choose them. Equal on all
  // members.
  [[nodiscard]] virtual bool knows_levels() const { return true; }
  // Returns the stream for such calls. Null: host memory.
  [[nodiscard]] virtual GpuStream stream() const = 0;

  // Copies bytes that do not overlap.
  [[nodiscard]] virtual Status copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  // Returns a buffer of at least `bytes` bytes for one batch. This object owns the buffer, and gives it to
  // another batch again: to the kDepth-th after this one.
  [[nodiscard]] virtual Result<std::byte*> fusion_buffer(std::size_t bytes) = 0;
  // Do the same as pack() and unpack().
  [[nodiscard]] virtual Status pack(std::span<const PackItem> items, std::byte* buffer) = 0;
  [[nodiscard]] virtual Status unpack(std::span<const UnpackItem> items, const std::byte* buffer) = 0;
  // Returns memory of this shape for the result of a tensor. The entry's Results allocates and owns it.
  [[nodiscard]] virtual Result<std::byte*> result(const BatchTensor& tensor,
                                                  const std::vector<std::int64_t>& shape) = 0;

  // Returns the arithmetic on this memory, which belongs to this object.
  [[nodiscard]] virtual compress::Arithmetic& math() = 0;
  // Makes room for `bytes`, aligned for all elements. The content is lost if the memory changes.
  [[nodiscard]] virtual Status reserve(Scratch& scratch, std::size_t bytes) = 0;
  // Returns a workspace that no technique uses. Give it to return_workspace() when the technique has ended.
  [[nodiscard]] std::unique_ptr<TechniqueWorkspace> take_workspace();
  void return_workspace(std::unique_ptr<TechniqueWorkspace> workspace);

 protected:
  // Leaks the workspaces that were given back, where a device may still work on their memory.
  void leak_workspaces();

 private:
  collective::Fabric& host_;
  FramePool& frames_;
  std::vector<std::unique_ptr<TechniqueWorkspace>> workspaces_;  // as many as were in use at once
};

class HostBuffers final : public DeviceBuffers {
 public:
  // A fusion buffer of more than `keep_bytes` is freed after use.
  HostBuffers(collective::Fabric& fabric, FramePool& frames, std::size_t keep_bytes);

  [[nodiscard]] collective::Fabric& fabric() override { return host_fabric(); }
  [[nodiscard]] GpuStream stream() const override { return nullptr; }
  [[nodiscard]] Status copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  [[nodiscard]] Result<std::byte*> fusion_buffer(std::size_t bytes) override;
  [[nodiscard]] Status pack(std::span<const PackItem> items, std::byte* buffer) override;
  [[nodiscard]] Status unpack(std::span<const UnpackItem> items, const std::byte* buffer) override;
  [[nodiscard]] Result<std::byte*> result(const BatchTensor& tensor,
                                          const std::vector<std::int64_t>& shape) override;
  [[nodiscard]] compress::Arithmetic& math() override { return math_; }
  [[nodiscard]] Status reserve(Scratch& scratch, std::size_t bytes) override;
  // Leaks the fusion buffers, where the medium may still write to them.
  void leak_buffers();

 private:
  compress::HostArithmetic math_;
  std::array<FusionBuffer, kDepth> buffers_;
  std::size_t next_ = 0;  // the buffer that the next batch gets
};

}  // namespace roundelay::execute
