// One optimizer's gradients of one dtype in one region: an entry for each parameter, and buckets, which are
// ranges of entries that are reduced where they lie.
//
// An entry is a tensor with a storage of its own over its part of the region, with the parameter's strides
// and no autograd history: `.grad` can be one like any other tensor. On a GPU all work on it is enqueued in
// the current stream.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/StorageImpl.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "adapter/accelerator.h"
#include "adapter/operands.h"
#include "base/region.h"
#include "base/status.h"

namespace roundelay::adapter {

// All calls with the GIL; the region lives as long as the pool and every tensor that was made from it. Beside
// the errors below: kAborted, where a GPU has failed.
class GradientPool {
 public:
  // On a GPU the region is zeroed first. `accelerator` outlives the pool.
  GradientPool(RegionPtr region, c10::Device device, Accelerator& accelerator);

  [[nodiscard]] const Region& region() const { return *region_; }
  // A place for the gradient of `parameter` at a byte offset, in this type on the wire. The entry's index.
  // Errors: kInvalidArgument (it is not within the region).
  Result<std::size_t> add(std::size_t offset, const at::Tensor& parameter, at::ScalarType type);
  // Takes all entries out. Who still holds one keeps its values: they move out of the region.
  void clear();
  // The entry, holding `gradient` (cast; copied unless it is the entry already), zeros where it is undefined.
  // Who still holds what the entry was before keeps those values: they move out of the region.
  Result<at::Tensor> fill(std::size_t index, const at::Tensor& gradient);
  // Whether this is the entry.
  [[nodiscard]] bool holds(std::size_t index, const at::Tensor& gradient) const {
    return is(entries_.at(index), gradient);
  }
  // The C library gives back what is free now: the memory of the gradients that entries have replaced. It
  // would keep it, as small things lie in between. Nothing on a GPU.
  void trim() const;
  // All is as the current stream has it: other streams fill entries behind what is in this one now (results,
  // what moved out). Nothing on the CPU.
  [[nodiscard]] Status settle();
  // How often that was.
  [[nodiscard]] std::int64_t moved_out() const { return moved_out_; }
  // `count` elements from `offset` on, to be reduced in place. Errors: kInvalidArgument.
  Result<OperandPtr> bucket(std::size_t offset, std::size_t count, at::ScalarType type) const;

 private:
  struct Entry {
    std::size_t offset, bytes;
    std::vector<std::int64_t> sizes, strides;
    at::ScalarType type;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // of the last tensor that was made
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
  // Whether it is laid out in memory as the entry is.
  [[nodiscard]] bool fits(const Entry& entry, const at::Tensor& gradient) const;
  [[nodiscard]] bool is(const Entry& entry, const at::Tensor& gradient) const;
  void vacate(const Entry& entry);
  void move_out(c10::StorageImpl& storage, const Entry& entry) const;

  const RegionPtr region_;
  const c10::Device device_;
  Accelerator& accelerator_;
  std::optional<Settled> settled_;
  std::vector<Entry> entries_;
  std::int64_t moved_out_ = 0;
};

}  // namespace roundelay::adapter
