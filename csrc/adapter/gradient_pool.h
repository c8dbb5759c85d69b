// One optimizer's gradients of one dtype in one region: an entry for each parameter, and buckets, which are
// ranges of entries that are reduced where they lie.
//
// An entry is a tensor with a storage of its own over its part of the region, with the parameter's strides
// and no autograd history: `.grad` can be one like any other tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "adapter/operands.h"
#include "base/region.h"
#include "base/status.h"

namespace roundelay::adapter {

// All calls with the GIL; the region lives as long as the pool and every tensor that was made from it.
class GradientPool {
 public:
  explicit GradientPool(RegionPtr region) : region_(std::move(region)) {}

  [[nodiscard]] const Region& region() const { return *region_; }
  // A place for the gradient of `parameter` at a byte offset, in this type on the wire. The entry's index.
  // Errors: kInvalidArgument (it is not within the region).
  Result<std::size_t> add(std::size_t offset, const at::Tensor& parameter, at::ScalarType type);
  // Takes all entries out. Who still holds one keeps its values: they move out of the region.
  void clear();
  // The entry, holding `gradient` (cast; copied unless it is the entry already), zeros where it is undefined.
  // Who still holds what the entry was before keeps those values: they move out of the region.
  at::Tensor fill(std::size_t index, const at::Tensor& gradient);
  // `count` elements from `offset` on, to be reduced in place. Errors: kInvalidArgument.
  Result<OperandPtr> bucket(std::size_t offset, std::size_t count, at::ScalarType type) const;

 private:
  struct Entry {
    std::size_t offset, bytes;
    std::vector<std::int64_t> sizes, strides;
    at::ScalarType type;
    at::Tensor last{};  // that was made: used again where nobody has it any more
  };
  [[nodiscard]] bool contains(std::size_t offset, std::size_t bytes) const {
    return offset <= region_->own.size() && bytes <= region_->own.size() - offset;
  }
  [[nodiscard]] at::Tensor tensor_at(std::size_t offset, std::size_t bytes,
                                     const std::vector<std::int64_t>& sizes,
                                     const std::vector<std::int64_t>& strides, at::ScalarType type) const;
  [[nodiscard]] bool is(const Entry& entry, const at::Tensor& gradient) const;
  void vacate(const Entry& entry) const;
  void renew(Entry& entry) const;

  const RegionPtr region_;
  std::vector<Entry> entries_;
};

}  // namespace roundelay::adapter
