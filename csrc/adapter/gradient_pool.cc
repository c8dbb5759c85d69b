#include "adapter/gradient_pool.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorOptions.h>

#include <cstring>
#include <string>
#include <utility>

#include "adapter/operand.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace roundelay::adapter {
namespace {

// Memory of the region for a storage, which keeps the region.
c10::DataPtr in_region(const RegionPtr& region, std::size_t offset, c10::Device device) {
  return {region->own.data() + offset, new RegionPtr(region),
          [](void* held) { delete static_cast<RegionPtr*>(held); }, device};
}

// Up to this size, in bytes, memcpy is faster than torch's copy_, whose overhead exceeds the copy.
constexpr std::size_t kSmall = std::size_t{16} << 10U;

// A storage's memory after its values have moved out. Keeps the region, too: a NumPy array still points
// there.
struct MovedOut {
  at::Tensor values;
  c10::DataPtr before;
};

}  // namespace

GradientPool::GradientPool(RegionPtr region, c10::Device device, Accelerator& accelerator)
    : region_(std::move(region)), device_(device), accelerator_(accelerator) {
  if (device_.is_cpu()) return;
  const std::size_t bytes = region_->own.size();
  tensor_at(0, bytes, {static_cast<std::int64_t>(bytes)}, {1}, at::kByte).zero_();
}

Result<std::size_t> GradientPool::add(std::size_t offset, const at::Tensor& parameter, at::ScalarType type) {
  const auto bytes = static_cast<std::size_t>(parameter.numel()) * c10::elementSize(type);
  if (!contains(offset, bytes)) return Status::invalid("an entry must lie within its gradient pool");
  // Torch gives gradients these strides.
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
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, in_region(region_, offset, device_), nullptr,
                       false);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::computeDispatchKey(type, at::kStrided, device_)),
      c10::scalarTypeToTypeMeta(type));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

bool GradientPool::fits(const Entry& entry, const at::Tensor& gradient) const {
  return gradient.layout() == at::kStrided && gradient.device() == device_ &&
         gradient.scalar_type() == entry.type && gradient.sizes() == entry.sizes &&
         gradient.strides() == entry.strides && !gradient.is_neg() && !gradient._is_zerotensor();
}

bool GradientPool::is(const Entry& entry, const at::Tensor& gradient) const {
  return gradient.defined() && fits(entry, gradient) && !gradient.requires_grad() &&
         gradient.const_data_ptr() == region_->own.data() + entry.offset;
}

Result<at::Tensor> GradientPool::fill(std::size_t index, const at::Tensor& gradient) {
  Entry& entry = entries_.at(index);
  if (is(entry, gradient)) return gradient;
  if (settled_ && !settled_->stream.is_current())
    ROUNDELAY_RETURN_IF_ERROR(settled_->stream.hold_back_current(*settled_->event));
  const c10::InferenceMode normal(false);
  const at::NoGradGuard no_grad;  // the other guard turns gradients on
  vacate(entry);
  entry.storage.reset();  // so that the next storage object reuses this one's memory
  at::Tensor tensor = tensor_at(entry.offset, entry.bytes, entry.sizes, entry.strides, entry.type);
  if (!gradient.defined()) {
    tensor.zero_();
  } else if (fits(entry, gradient) && device_.is_cpu() && entry.bytes <= kSmall) {
    std::memcpy(region_->own.data() + entry.offset, gradient.const_data_ptr(), entry.bytes);
  } else {
    tensor.copy_(gradient.layout() == at::kStrided ? gradient : gradient.to_dense());
  }
  entry.storage = c10::weak_intrusive_ptr<c10::StorageImpl>(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(tensor.storage().unsafeGetStorageImpl()));
  return tensor;
}

void GradientPool::trim() const {
#ifdef __GLIBC__
  if (device_.is_cpu()) malloc_trim(0);
#endif
}

Status GradientPool::settle() {
  const Result<std::optional<CallerStream>> stream = accelerator_.stream_for(device_, "a gradient pool");
  if (!stream.ok()) return stream.status();
  if (!*stream) return {};
  Result<GpuEventPtr> event = (*stream)->mark();
  if (!event.ok()) return event.status();
  settled_.emplace(Settled{**stream, std::move(event).value()});
  return {};
}

// The storage's references say whether somebody holds the tensor. The tensor's own do not: a tensor that
// Python has seen counts itself as long as anything else holds it.
void GradientPool::vacate(const Entry& entry) {
  const auto held = entry.storage.lock();
  if (!held || held->data() != region_->own.data() + entry.offset) return;
  move_out(*held, entry);
  ++moved_out_;
}

void GradientPool::move_out(c10::StorageImpl& storage, const Entry& entry) const {
  const at::Tensor values =
      at::empty(static_cast<std::int64_t>(entry.bytes), at::device(device_).dtype(at::kByte));
  values.copy_(tensor_at(entry.offset, entry.bytes, values.sizes().vec(), {1}, at::kByte));
  auto* const kept = new MovedOut{values, {}};
  kept->before = storage.set_data_ptr(c10::DataPtr(
      values.mutable_data_ptr(), kept, [](void* held) { delete static_cast<MovedOut*>(held); }, device_));
}

PoolRange GradientPool::range(std::size_t index) const {
  const Entry& entry = entries_.at(index);
  return {entry.offset, entry.bytes, entry.type};
}

Result<OperandPtr> GradientPool::operand(const PoolRange& range) const {
  if (!contains(range.offset, range.bytes))
    return Status::invalid("a bucket must lie within its gradient pool");
  const c10::InferenceMode normal(false);
  const std::vector<std::int64_t> sizes{
      static_cast<std::int64_t>(range.bytes / c10::elementSize(range.type))};
  auto stream = accelerator_.stream_for(device_, "a gradient pool");
  if (!stream.ok()) return stream.status();
  return Operand::make_in_place(tensor_at(range.offset, range.bytes, sizes, {1}, range.type), region_,
                                *stream);
}

}  // namespace roundelay::adapter
