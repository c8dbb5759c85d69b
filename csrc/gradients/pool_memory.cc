#include "gradients/pool_memory.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorOptions.h>

#include <optional>
#include <utility>

#include "adapter/check.h"
#include "kernels/kernels.h"

namespace roundelay::gradients {
namespace {

// Memory of the region for a storage, which keeps the region.
c10::DataPtr in_region(const RegionPtr& region, std::size_t offset, c10::Device device) {
  return {region->own.data() + offset, new RegionPtr(region),
          [](void* held) { delete static_cast<RegionPtr*>(held); }, device};
}

std::size_t size_in_bytes(const at::Tensor& parameter, at::ScalarType type) {
  return static_cast<std::size_t>(parameter.numel()) * c10::elementSize(type);
}

// Up to this size, in bytes, a plain loop is faster than torch's copy_, whose overhead exceeds the copy.
constexpr std::size_t kSmall = std::size_t{16} << 10U;

// A storage's memory after its values have moved out. Keeps the region, too: a NumPy array still points
// there.
struct MovedOut {
  at::Tensor values;
  c10::DataPtr before;
};

}  // namespace

PoolMemory::PoolMemory(RegionPtr region, c10::Device device) : region_(std::move(region)), device_(device) {
  if (!device_.is_cpu()) elements({0, region_->own.size(), at::kByte}).zero_();
}

Status PoolMemory::check(std::size_t offset, const at::Tensor& parameter, at::ScalarType type) const {
  if (contains(offset, size_in_bytes(parameter, type))) return {};
  return Status::invalid("an entry must lie within its gradient pool");
}

Result<std::size_t> PoolMemory::add(std::size_t offset, const at::Tensor& parameter, at::ScalarType type) {
  ROUNDELAY_RETURN_IF_ERROR(check(offset, parameter, type));
  // Torch gives gradients these strides.
  const at::Tensor like = parameter.is_non_overlapping_and_dense()
                              ? parameter
                              : at::empty(parameter.sizes(), parameter.options());
  entries_.push_back({offset, size_in_bytes(parameter, type), like.sizes().vec(), like.strides().vec(), type,
                      c10::weak_intrusive_ptr<c10::StorageImpl>(c10::intrusive_ptr<c10::StorageImpl>())});
  return entries_.size() - 1;
}

void PoolMemory::clear() {
  if (entries_.empty()) return;
  for (const Entry& entry : entries_) vacate(entry);
  entries_.clear();
  elements({0, region_->own.size(), at::kByte}).zero_();
}

PoolRange PoolMemory::range(std::size_t index) const {
  const Entry& entry = entries_.at(index);
  return {entry.offset, entry.bytes, entry.type};
}

bool PoolMemory::fits(const Entry& entry, const at::Tensor& gradient) const {
  return gradient.layout() == at::kStrided && gradient.device() == device_ &&
         gradient.sizes() == entry.sizes && gradient.strides() == entry.strides && !gradient.is_neg() &&
         !gradient._is_zerotensor();
}

bool PoolMemory::is(std::size_t index, const at::Tensor& gradient) const {
  const Entry& entry = entries_.at(index);
  return gradient.defined() && gradient.scalar_type() == entry.type && fits(entry, gradient) &&
         !gradient.requires_grad() && gradient.const_data_ptr() == region_->own.data() + entry.offset;
}

bool PoolMemory::suits(std::size_t index, const at::Tensor& parameter) const {
  return parameter.sizes() == entries_.at(index).sizes && parameter.device() == device_;
}

at::Tensor PoolMemory::tensor_at(std::size_t offset, std::size_t bytes,
                                 const std::vector<std::int64_t>& sizes,
                                 const std::vector<std::int64_t>& strides, at::ScalarType type) const {
  const c10::InferenceMode normal(false);
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, in_region(region_, offset, device_), nullptr,
                       false);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::computeDispatchKey(type, at::kStrided, device_)),
      c10::scalarTypeToTypeMeta(type));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

at::Tensor PoolMemory::elements(const PoolRange& range) const {
  return tensor_at(range.offset, range.bytes, {static_cast<std::int64_t>(range.count())}, {1}, range.type);
}

at::Tensor PoolMemory::renew(std::size_t index) {
  Entry& entry = entries_.at(index);
  vacate(entry);
  entry.storage.reset();  // so that the next storage object reuses this one's memory
  at::Tensor tensor = tensor_of(entry);
  entry.storage = c10::weak_intrusive_ptr<c10::StorageImpl>(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(tensor.storage().unsafeGetStorageImpl()));
  return tensor;
}

void PoolMemory::write(std::size_t index, const at::Tensor& gradient) {
  const Entry& entry = entries_.at(index);
  vacate(entry);
  if (!copy_small(entry, gradient)) copy(tensor_of(entry), gradient);
}

at::Tensor PoolMemory::fill(std::size_t index, const at::Tensor& gradient) {
  at::Tensor tensor = renew(index);
  if (!copy_small(entries_[index], gradient)) copy(tensor, gradient);
  return tensor;
}

void PoolMemory::copy(const at::Tensor& tensor, const at::Tensor& gradient) {
  const c10::InferenceMode normal(false);
  const at::NoGradGuard no_grad;  // the other guard turns gradients on
  if (!gradient.defined()) {
    tensor.zero_();
    return;
  }
  tensor.copy_(gradient.layout() == at::kStrided ? gradient : gradient.to_dense());
  ++copied_;
}

bool PoolMemory::copy_small(const Entry& entry, const at::Tensor& gradient) {
  if (!gradient.defined() || !device_.is_cpu() || entry.bytes > kSmall || !fits(entry, gradient))
    return false;
  const at::ScalarType from = gradient.scalar_type();
  if (from != entry.type && from != at::kFloat) return false;  // torch rounds fp64 twice
  const std::optional<DType> to = adapter::reducible_dtype_of(entry.type);
  const std::optional<DType> type = adapter::reducible_dtype_of(from);
  if (!to || !type) return false;
  kernels::cast(region_->own.data() + entry.offset, *to, gradient.const_data_ptr(), *type,
                static_cast<std::size_t>(gradient.numel()));
  ++copied_;
  return true;
}

// The storage's references say whether somebody holds the tensor. The tensor's own do not: a tensor that
// Python has seen counts itself as long as anything else holds it.
void PoolMemory::vacate(const Entry& entry) {
  const auto held = entry.storage.lock();
  if (!held || held->data() != region_->own.data() + entry.offset) return;
  move_out(*held, entry);
  ++moved_out_;
}

void PoolMemory::move_out(c10::StorageImpl& storage, const Entry& entry) const {
  const c10::InferenceMode normal(false);
  const at::NoGradGuard no_grad;  // the other guard turns gradients on
  const at::Tensor values =
      at::empty(static_cast<std::int64_t>(entry.bytes), at::device(device_).dtype(at::kByte));
  values.copy_(elements({entry.offset, entry.bytes, at::kByte}));
  auto* const kept = new MovedOut{values, {}};
  kept->before = storage.set_data_ptr(c10::DataPtr(
      values.mutable_data_ptr(), kept, [](void* held) { delete static_cast<MovedOut*>(held); }, device_));
}

}  // namespace roundelay::gradients
