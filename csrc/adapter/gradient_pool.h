// The gradients of one optimizer, of one device and dtype, in one region of memory. Each parameter has an
// entry; a bucket is a range of entries that is reduced in place.
//
// An entry is a tensor with a storage of its own over its part of the region, with the parameter's strides
// and no autograd history, so that `.grad` can be one. On a GPU all work is enqueued in the current stream.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/StorageImpl.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "adapter/accelerator.h"
#include "adapter/operands.h"
#include "base/region.h"
#include "base/status.h"

namespace roundelay::adapter {

// A part of a pool: elements of this type from a byte offset on.
struct PoolRange {
  std::size_t offset = 0;
  std::size_t bytes = 0;
  at::ScalarType type = at::kFloat;
};

// Callers hold the GIL. The region lives as long as the pool and every tensor made from it. Each function
// with errors may also return kAborted (a GPU has failed).
class GradientPool {
 public:
  // Makes a pool without entries. Zeroes the region on a GPU; on the CPU it is zero already. `accelerator`
  // outlives the pool.
  GradientPool(RegionPtr region, c10::Device device, Accelerator& accelerator);

  [[nodiscard]] const Region& region() const { return *region_; }
  [[nodiscard]] c10::Device device() const { return device_; }
  // Adds an entry for the gradient of `parameter` at a byte offset; `type` is the type that is reduced, and
  // may differ from the parameter's. Returns the entry's index. Errors: kInvalidArgument (the entry is not
  // within the region).
  Result<std::size_t> add(std::size_t offset, const at::Tensor& parameter, at::ScalarType type);
  // Removes all entries. Tensors of them that somebody holds keep their values: these move out of the region.
  void clear();
  // Fills the entry with `gradient` (cast), or with zeros if it is undefined, and returns the entry. Copies
  // nothing if `gradient` is the entry. Earlier tensors of the entry that somebody holds keep their values.
  Result<at::Tensor> fill(std::size_t index, const at::Tensor& gradient);
  // Returns the part of the pool that the entry takes.
  [[nodiscard]] PoolRange range(std::size_t index) const;
  // Has the C library return free memory to the system: that of gradients which entries have replaced. Small
  // blocks between them keep it otherwise. Does nothing on a GPU.
  void trim() const;
  // Call it when results are complete in the current stream. Other streams then wait for this point before
  // they fill an entry. Does nothing on the CPU.
  [[nodiscard]] Status settle();
  // Counts how often an entry's values had to move out, as somebody held its last tensor.
  [[nodiscard]] std::int64_t moved_out() const { return moved_out_; }
  // Makes the operand of an allreduce in place. Errors: kInvalidArgument (the range is not within the
  // region).
  Result<OperandPtr> operand(const PoolRange& range) const;

  // Counts the buckets that are submitted in a step. take_turns() returns their number and ends the step.
  int next_turn() { return ++turns_; }
  int take_turns() { return std::exchange(turns_, 0); }

 private:
  struct Entry {
    std::size_t offset, bytes;
    std::vector<std::int64_t> sizes, strides;
    at::ScalarType type;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // the last tensor's
  };
  struct Settled {
    CallerStream stream;
    GpuEventPtr event;
  };
  [[nodiscard]] bool contains(std::size_t offset, std::size_t bytes) const {
    return offset <= region_->own.size() && bytes <= region_->own.size() - offset;
  }
  [[nodiscard]] at::Tensor tensor_at(std::size_t offset, std::size_t bytes,
                                     const std::vector<std::int64_t>& sizes,
                                     const std::vector<std::int64_t>& strides, at::ScalarType type) const;
  // Returns true if the gradient's memory layout, dtype and device are the entry's.
  [[nodiscard]] bool fits(const Entry& entry, const at::Tensor& gradient) const;
  // Returns true if the gradient is the entry.
  [[nodiscard]] bool is(const Entry& entry, const at::Tensor& gradient) const;
  // Moves out the values of the entry's last tensor if somebody holds it.
  void vacate(const Entry& entry);
  void move_out(c10::StorageImpl& storage, const Entry& entry) const;

  const RegionPtr region_;
  const c10::Device device_;
  Accelerator& accelerator_;
  std::optional<Settled> settled_;
  std::vector<Entry> entries_;
  std::int64_t moved_out_ = 0;
  int turns_ = 0;  // the number of buckets submitted in this step
};

}  // namespace roundelay::adapter
