#include "collective/device/device_work.h"

#include "collective/single/gpu_single.h"

namespace roundelay::collective::device {

void DeviceWork::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0 || to == from) return;
  stream_->enqueued(stream_->runtime().copy(stream_->device(), to, from, bytes, stream_->stream()));
}

void DeviceWork::copy_elements(const kernels::GpuCopy& item, Scale scale) {
  const bool changes = item.to != item.from || item.to_type != item.from_type || !scale.identity();
  if (item.count == 0 || !changes) return;
  stream_->enqueued(kernels_.copy_batch(stream_->device(), {&item, 1}, scale, stream_->stream()));
}

void DeviceWork::scale_copy(std::byte* to, const std::byte* from, std::size_t count, DType dtype,
                            Scale scale) {
  copy_elements({to, from, count, dtype, dtype}, scale);
}

void DeviceWork::cast(std::byte* to, DType to_type, const std::byte* from, DType from_type,
                      std::size_t count) {
  copy_elements({to, from, count, to_type, from_type}, {});
}

void DeviceWork::sum(const Reduction& how, std::byte* to, std::span<const std::byte* const> parts,
                     std::size_t count) {
  if (count == 0) return;
  stream_->enqueued(kernels_.reduce_parts(stream_->device(), to, parts, count, how.dtype, how.reduce_op,
                                          how.prescale, how.scale, stream_->stream()));
  FabricCounters::add(counters_->gpu_sums);
  FabricCounters::add(counters_->gpu_sum_bytes, count * size_of(how.dtype));
}

void DeviceWork::reduce(const Reduction& how, std::byte* own, const std::byte* incoming, std::size_t count) {
  const std::byte* const both[] = {own, incoming};
  sum({.dtype = how.dtype, .reduce_op = how.reduce_op}, own, both, count);
}

void DeviceWork::reduce_parts(const Reduction& how, std::byte* to, std::span<const void* const> parts,
                              std::size_t count) {
  parts_.clear();
  for (const void* const part : parts) parts_.push_back(static_cast<const std::byte*>(part));
  sum(how, to, parts_, count);
}

void DeviceWork::finish_single(const Call& call) {
  Call here = call;
  options_of(here).stream = stream_->stream();
  stream_->enqueued(enqueue_single(here, stream_->runtime(), kernels_, stream_->device()));
}

}  // namespace roundelay::collective::device
