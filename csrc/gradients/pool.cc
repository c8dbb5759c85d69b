#include "gradients/pool.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <utility>

#include "adapter/gil.h"
#include "adapter/operand.h"
#include "adapter/process.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace roundelay::gradients {
namespace {

// Returns the range of the same elements in a memory of another type.
PoolRange as_type(const PoolRange& range, at::ScalarType type) {
  const std::size_t each = c10::elementSize(type);
  return {range.offset / c10::elementSize(range.type) * each, range.count() * each, type, range.entries};
}

}  // namespace

GradientPool::GradientPool(RegionPtr region, c10::Device device, const std::optional<ResultMemory>& results)
    : memory_(std::move(region), device), result_type_(results ? results->type : at::kFloat) {
  if (results) results_.emplace(results->region, device);
}

Result<std::shared_ptr<GradientPool>> GradientPool::make(std::uint64_t key, std::size_t bytes,
                                                         ProcessSetId process_set, c10::Device device,
                                                         const std::optional<ResultSize>& results) {
  const auto context = adapter::current_context();
  if (!context.ok()) return context.status();
  const int gpu = device.is_cpu() ? -1 : device.index();
  Result<RegionPtr> region = RegionPtr();
  Result<RegionPtr> second = RegionPtr();
  {
    const adapter::GilReleased no_gil;
    region = (*context)->make_region(process_set, key, bytes, gpu);
    if (results) {  // only this process has access to it
      second = gpu < 0 ? make_private_region(key, results->second)
                       : (*context)->make_region(process_set, key, results->second, gpu);
    }
  }
  if (!region.ok()) return region.status();
  if (!second.ok()) return second.status();
  std::optional<ResultMemory> memory;
  if (results) memory = {*std::move(second), results->first};
  std::shared_ptr<GradientPool> pool(new GradientPool(*std::move(region), device, memory));
  pool->process_set_ = process_set;
  pool->context_ = *context;
  return pool;
}

Result<std::size_t> GradientPool::add(std::size_t offset, const at::Tensor& parameter, at::ScalarType type) {
  ROUNDELAY_RETURN_IF_ERROR(memory_.check(offset, parameter, type));
  if (results_) {
    const PoolRange place = as_type({offset, 0, type}, result_type_);
    const Result<std::size_t> added = results_->add(place.offset, parameter, result_type_);
    if (!added.ok()) return added;
  }
  return memory_.add(offset, parameter, type);
}

void GradientPool::clear() {
  memory_.clear();
  if (results_) results_->clear();
}

Status GradientPool::wait_for_event() const {
  if (!recorded_ || recorded_->stream.is_current()) return {};
  return recorded_->stream.hold_back_current(*recorded_->event);
}

Result<at::Tensor> GradientPool::fill(std::size_t index, const at::Tensor& gradient) {
  if (memory_.is(index, gradient)) return gradient;
  ROUNDELAY_RETURN_IF_ERROR(wait_for_event());
  return memory_.fill(index, gradient);
}

Status GradientPool::write(std::size_t index, const at::Tensor& gradient) {
  if (memory_.is(index, gradient)) return {};
  ROUNDELAY_RETURN_IF_ERROR(wait_for_event());
  memory_.write(index, gradient);
  return {};
}

Result<at::Tensor> GradientPool::result(std::size_t index, const at::Tensor& before) {
  PoolMemory& memory = results_ ? *results_ : memory_;
  if (memory.is(index, before)) return before;
  ROUNDELAY_RETURN_IF_ERROR(wait_for_event());
  return memory.renew(index);
}

void GradientPool::restore(std::size_t index) {
  if (!results_) return;
  const c10::InferenceMode normal(false);
  const at::NoGradGuard no_grad;  // the other guard turns gradients on
  results_->elements(results_->range(index)).copy_(memory_.elements(memory_.range(index)));
}

void GradientPool::trim() const {
#ifdef __GLIBC__
  if (device().is_cpu()) malloc_trim(0);
#endif
}

Status GradientPool::record_event() {
  const Result<std::optional<adapter::CallerStream>> stream =
      adapter::accelerator().stream_for(device(), "a gradient pool");
  if (!stream.ok()) return stream.status();
  if (!*stream) return {};
  Result<GpuEventPtr> event = (*stream)->mark();
  if (!event.ok()) return event.status();
  recorded_.emplace(Recorded{**stream, std::move(event).value()});
  return {};
}

std::int64_t GradientPool::moved_out() const {
  return memory_.moved_out() + (results_ ? results_->moved_out() : 0);
}

Result<complete::Handle> GradientPool::allreduce(const PoolRange& range, const std::string& name,
                                                 const adapter::ReductionArguments& reduction, bool cast_back,
                                                 const TechniqueUse& technique) const {
  auto request = adapter::request_of(Operation::kAllreduce, name, reduction, process_set_);
  if (!request.ok()) return request.status();
  request->region = {region().key, range.offset};
  request->technique = technique.text;
  const auto context = adapter::current_context();
  if (!context.ok()) return context.status();
  const bool stale = context_.lock() != *context;
  return adapter::submit(stale ? Status::invalid("this gradient pool was made before the last init()")
                               : operand(range, cast_back),
                         *std::move(request), {process_set_, false}, {}, technique.technique);
}

Result<std::vector<int>> GradientPool::level_sizes() const {
  const auto context = adapter::current_context();
  if (!context.ok()) return context.status();
  return (*context)->level_sizes(process_set_, device().is_cpu() ? DeviceType::kCpu : DeviceType::kGpu);
}

Result<adapter::OperandPtr> GradientPool::operand(const PoolRange& range, bool cast_back) const {
  const bool casts = results_ && cast_back;
  const PoolRange results = casts ? as_type(range, result_type_) : range;
  const PoolMemory& memory = casts ? *results_ : memory_;
  if (!memory_.contains(range.offset, range.bytes) || !memory.contains(results.offset, results.bytes))
    return Status::invalid("a bucket must lie within its gradient pool");
  auto stream = adapter::accelerator().stream_for(device(), "a gradient pool");
  if (!stream.ok()) return stream.status();
  const at::Tensor sent = memory_.elements(range);
  return adapter::Operand::make_in_place(sent, casts ? memory.elements(results) : sent, memory_.region(),
                                         *stream, range.entries);
}

}  // namespace roundelay::gradients
