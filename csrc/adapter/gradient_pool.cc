#include "adapter/gradient_pool.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StorageImpl.h>

#include <cstring>
#include <string>
#include <utility>

#include "adapter/operand.h"

namespace roundelay::adapter {
namespace {

// Keeps the region for as long as a storage points into it.
c10::DataPtr in_region(const RegionPtr& region, std::size_t offset) {
  return {region->own.data() + offset, new RegionPtr(region),
          [](void* held) { delete static_cast<RegionPtr*>(held); }, c10::Device(c10::kCPU)};
}

// Memory apart from the region, which it keeps all the same: what looks at a tensor from outside of torch
// (NumPy) goes on looking there.
struct MovedOut {
  c10::DataPtr memory;
  c10::DataPtr before;
};

void move_out(c10::StorageImpl& storage) {
  const std::size_t bytes = storage.nbytes();
  c10::DataPtr memory = c10::GetCPUAllocator()->allocate(bytes);
  void* const data = memory.get();
  std::memcpy(data, storage.data(), bytes);
  auto* const kept = new MovedOut{std::move(memory), {}};
  kept->before = storage.set_data_ptr(c10::DataPtr(
      data, kept, [](void* held) { delete static_cast<MovedOut*>(held); }, c10::Device(c10::kCPU)));
}

}  // namespace

Result<std::size_t> GradientPool::add(std::size_t offset, const at::Tensor& parameter, at::ScalarType type) {
  const auto bytes = static_cast<std::size_t>(parameter.numel()) * c10::elementSize(type);
  if (!contains(offset, bytes)) return Status::invalid("an entry must lie within its gradient pool");
  // As torch lays out a gradient.
  const at::Tensor like = parameter.is_non_overlapping_and_dense()
                              ? parameter
                              : at::empty(parameter.sizes(), parameter.options());
  entries_.push_back({offset, bytes, like.sizes().vec(), like.strides().vec(), type});
  return entries_.size() - 1;
}

void GradientPool::clear() {
  for (const Entry& entry : entries_) vacate(entry);
  entries_.clear();
}

at::Tensor GradientPool::tensor_at(std::size_t offset, std::size_t bytes,
                                   const std::vector<std::int64_t>& sizes,
                                   const std::vector<std::int64_t>& strides, at::ScalarType type) const {
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, in_region(region_, offset), nullptr, false);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(type));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

bool GradientPool::is(const Entry& entry, const at::Tensor& gradient) const {
  return gradient.defined() && gradient.layout() == at::kStrided && gradient.scalar_type() == entry.type &&
         gradient.const_data_ptr() == region_->own.data() + entry.offset && gradient.sizes() == entry.sizes &&
         gradient.strides() == entry.strides && !gradient.is_neg() && !gradient.requires_grad();
}

at::Tensor GradientPool::fill(std::size_t index, const at::Tensor& gradient) {
  Entry& entry = entries_.at(index);
  if (is(entry, gradient)) return gradient;
  const c10::InferenceMode normal(false);
  const at::NoGradGuard no_grad;  // the other guard turns gradients on
  renew(entry);
  if (!gradient.defined()) {
    entry.last.zero_();
  } else {
    entry.last.copy_(gradient.layout() == at::kStrided ? gradient : gradient.to_dense());
  }
  return entry.last;
}

// Who still has the last tensor, or looks at its memory, keeps the values.
void GradientPool::vacate(const Entry& entry) const {
  if (!entry.last.defined() || !entry.last.has_storage()) return;
  const bool held = entry.last.use_count() > 1 || entry.last.storage().use_count() > 1;
  if (held && entry.last.const_data_ptr() == region_->own.data() + entry.offset)
    move_out(*entry.last.storage().unsafeGetStorageImpl());
}

// The same tensor in each step, if it can be: a new one, allocated between gradients that live shorter, would
// leave holes in the heap that no later gradient fits in.
void GradientPool::renew(Entry& entry) const {
  vacate(entry);
  if (entry.last.use_count() != 1 || !is(entry, entry.last))
    entry.last = tensor_at(entry.offset, entry.bytes, entry.sizes, entry.strides, entry.type);
}

Result<OperandPtr> GradientPool::bucket(std::size_t offset, std::size_t count, at::ScalarType type) const {
  const std::size_t bytes = count * c10::elementSize(type);
  if (!contains(offset, bytes)) return Status::invalid("a bucket must lie within its gradient pool");
  const c10::InferenceMode normal(false);
  const std::vector<std::int64_t> sizes{static_cast<std::int64_t>(count)};
  return Operand::make_in_place(tensor_at(offset, bytes, sizes, {1}, type), region_);
}

}  // namespace roundelay::adapter
