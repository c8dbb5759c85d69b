#include "adapter/gradient_pool.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StorageImpl.h>

#include <cstdlib>
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

// What autograd makes of gradients in a step, and what is freed as they are copied into a pool, glibc would
// give back to the system and fault in again: 10,000 pages in a step of ResNet-50. It keeps twice as much of
// free memory as the largest piece was that it has given back so far, which may be up to 32 MiB.
void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr std::size_t kLargest = std::size_t{32} << 20U;
  constexpr std::size_t kRoom = 4096;  // for what it writes beside it
  void* volatile piece = std::malloc(kLargest - kRoom);
  std::free(piece);
#endif
}

}  // namespace

GradientPool::GradientPool(RegionPtr region) : region_(std::move(region)) { keep_freed_memory(); }

Result<std::size_t> GradientPool::add(std::size_t offset, const at::Tensor& parameter, at::ScalarType type) {
  const auto bytes = static_cast<std::size_t>(parameter.numel()) * c10::elementSize(type);
  if (!contains(offset, bytes)) return Status::invalid("an entry must lie within its gradient pool");
  // As torch lays out a gradient.
  const at::Tensor like = parameter.is_non_overlapping_and_dense()
                              ? parameter
                              : at::empty(parameter.sizes(), parameter.options());
  entries_.push_back({offset, bytes, like.sizes().vec(), like.strides().vec(), type,
                      c10::weak_intrusive_ptr<c10::StorageImpl>(c10::intrusive_ptr<c10::StorageImpl>())});
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
  vacate(entry);
  at::Tensor tensor = tensor_at(entry.offset, entry.bytes, entry.sizes, entry.strides, entry.type);
  if (!gradient.defined()) {
    tensor.zero_();
  } else {
    tensor.copy_(gradient.layout() == at::kStrided ? gradient : gradient.to_dense());
  }
  entry.storage = c10::weak_intrusive_ptr<c10::StorageImpl>(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(tensor.storage().unsafeGetStorageImpl()));
  return tensor;
}

// Who still has the last tensor, or looks at its memory, keeps the values. Only its storage tells: a tensor
// that was seen in Python counts itself as held as long as anything else holds it.
void GradientPool::vacate(const Entry& entry) {
  const auto held = entry.storage.lock();
  if (!held || held->data() != region_->own.data() + entry.offset) return;
  move_out(*held);
  ++moved_out_;
}

Result<OperandPtr> GradientPool::bucket(std::size_t offset, std::size_t count, at::ScalarType type) const {
  const std::size_t bytes = count * c10::elementSize(type);
  if (!contains(offset, bytes)) return Status::invalid("a bucket must lie within its gradient pool");
  const c10::InferenceMode normal(false);
  const std::vector<std::int64_t> sizes{static_cast<std::int64_t>(count)};
  return Operand::make_in_place(tensor_at(offset, bytes, sizes, {1}, type), region_);
}

}  // namespace roundelay::adapter
