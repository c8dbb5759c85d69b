// Where the bytes of a batch are brought to where a fabric can work on them, and back: in host memory at
// once, on a GPU when it is their turn in a stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/gpu.h"
#include "base/status.h"
#include "collective/fabric.h"
#include "fuse/fusion_buffer.h"
#include "fuse/pack.h"
#include "runtime/lane/batch.h"

namespace roundelay::runtime {

// Batches with a fusion buffer of their own: one is packed while the one before it is on its way.
inline constexpr std::size_t kDepth = 2;

// One thread at a time: the lane's token. Errors: kUnavailable (no memory), kAborted (the device failed).
class DeviceBuffers {
 public:
  virtual ~DeviceBuffers() = default;
  // What carries out calls on this memory.
  [[nodiscard]] virtual collective::Fabric& fabric() = 0;
  // Of such calls; null: they are the CPU's.
  [[nodiscard]] virtual GpuStream stream() const = 0;

  [[nodiscard]] virtual Status copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  // Of this batch, until the batch after the next one asks for its own.
  [[nodiscard]] virtual Result<std::byte*> fusion_buffer(std::size_t bytes) = 0;
  [[nodiscard]] virtual Status pack(std::span<const fuse::PackItem> items, std::byte* buffer) = 0;
  [[nodiscard]] virtual Status unpack(std::span<const fuse::UnpackItem> items, const std::byte* buffer) = 0;
  // Memory for the result of a piece, from the entry's Results.
  [[nodiscard]] virtual Result<std::byte*> result(const Piece& piece,
                                                  const std::vector<std::int64_t>& shape) = 0;
};

class HostBuffers final : public DeviceBuffers {
 public:
  // A fusion buffer with more bytes is given back when it is not needed.
  HostBuffers(collective::Fabric& fabric, std::size_t keep_bytes);

  [[nodiscard]] collective::Fabric& fabric() override { return fabric_; }
  [[nodiscard]] GpuStream stream() const override { return nullptr; }
  [[nodiscard]] Status copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  [[nodiscard]] Result<std::byte*> fusion_buffer(std::size_t bytes) override;
  [[nodiscard]] Status pack(std::span<const fuse::PackItem> items, std::byte* buffer) override;
  [[nodiscard]] Status unpack(std::span<const fuse::UnpackItem> items, const std::byte* buffer) override;
  [[nodiscard]] Result<std::byte*> result(const Piece& piece,
                                          const std::vector<std::int64_t>& shape) override;
  // The medium may still write to them.
  void leak_buffers();

 private:
  collective::Fabric& fabric_;
  std::array<fuse::FusionBuffer, kDepth> buffers_;
  std::size_t next_ = 0;
};

}  // namespace roundelay::runtime
