// Memory with an entry for the gradient of each parameter.
//
// An entry is a tensor with a storage of its own over its part of the memory, with the parameter's strides
// and no autograd history, so that `.grad` can be one. On a GPU all work is enqueued in the current stream.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/StorageImpl.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/region.h"
#include "base/status.h"

namespace roundelay::gradients {

// A part of a memory: elements of this type from a byte offset on, which are so many entries.
struct PoolRange {
  std::size_t offset = 0;
  std::size_t bytes = 0;
  at::ScalarType type = at::kFloat;
  std::uint32_t entries = 1;

  [[nodiscard]] std::size_t count() const { return bytes / c10::elementSize(type); }
};

// Callers hold the GIL. The region lives as long as this object and every tensor made from it.
class PoolMemory {
 public:
  // Makes a memory without entries. Zeroes the region on a GPU; on the CPU it is zero already.
  PoolMemory(RegionPtr region, c10::Device device);

  [[nodiscard]] const RegionPtr& region() const { return region_; }
  [[nodiscard]] c10::Device device() const { return device_; }
  [[nodiscard]] bool contains(std::size_t offset, std::size_t bytes) const {
    return offset <= region_->own.size() && bytes <= region_->own.size() - offset;
  }

  // Checks whether add() can succeed. Errors: kInvalidArgument (the entry is not within the region).
  [[nodiscard]] Status check(std::size_t offset, const at::Tensor& parameter, at::ScalarType type) const;
  // Adds an entry of this type for the gradient of `parameter` at a byte offset, and returns its index.
  // Errors: as check().
  Result<std::size_t> add(std::size_t offset, const at::Tensor& parameter, at::ScalarType type);
  // Removes all entries, and zeroes the memory: what lies between the next entries is a part of buckets, too.
  // Tensors of entries that somebody holds keep their values: these move out of the memory.
  void clear();
  // Returns the part of the memory that the entry takes.
  [[nodiscard]] PoolRange range(std::size_t index) const;
  // Returns true if the gradient is the entry.
  [[nodiscard]] bool is(std::size_t index, const at::Tensor& gradient) const;
  // Returns true if the parameter has the shape and the device that it had in add().
  [[nodiscard]] bool suits(std::size_t index, const at::Tensor& parameter) const;

  // Returns a new tensor of the entry, with the entry's elements. Earlier tensors of the entry that somebody
  // holds keep their values.
  at::Tensor renew(std::size_t index);
  // Fills the entry with `gradient` (copied or cast), or with zeros if it is undefined. Earlier tensors keep
  // their values, as with renew().
  void write(std::size_t index, const at::Tensor& gradient);
  // renew() and write() in one.
  at::Tensor fill(std::size_t index, const at::Tensor& gradient);
  // Returns the elements of a range as a tensor of one dimension.
  [[nodiscard]] at::Tensor elements(const PoolRange& range) const;

  // Counts how often an entry's values had to move out, as somebody held its last tensor.
  [[nodiscard]] std::int64_t moved_out() const { return moved_out_; }
  // Counts the gradients that were copied or cast into an entry.
  [[nodiscard]] std::int64_t copied() const { return copied_; }

 private:
  struct Entry {
    std::size_t offset, bytes;
    std::vector<std::int64_t> sizes, strides;
    at::ScalarType type;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // the last tensor's
  };
  [[nodiscard]] at::Tensor tensor_at(std::size_t offset, std::size_t bytes,
                                     const std::vector<std::int64_t>& sizes,
                                     const std::vector<std::int64_t>& strides, at::ScalarType type) const;
  [[nodiscard]] at::Tensor tensor_of(const Entry& entry) const {
    return tensor_at(entry.offset, entry.bytes, entry.sizes, entry.strides, entry.type);
  }
  // Returns true if the gradient's memory layout and device are the entry's.
  [[nodiscard]] bool fits(const Entry& entry, const at::Tensor& gradient) const;
  // Copies or casts a gradient that fits, on the CPU. Returns false, without any effect, if torch is faster
  // or rounds in another way.
  [[nodiscard]] bool copy_small(const Entry& entry, const at::Tensor& gradient);
  void copy(const at::Tensor& tensor, const at::Tensor& gradient);
  // Moves out the values of the entry's last tensor if somebody holds it.
  void vacate(const Entry& entry);
  void move_out(c10::StorageImpl& storage, const Entry& entry) const;

  const RegionPtr region_;
  const c10::Device device_;
  std::vector<Entry> entries_;
  std::int64_t moved_out_ = 0;
  std::int64_t copied_ = 0;
};

}  // namespace roundelay::gradients
