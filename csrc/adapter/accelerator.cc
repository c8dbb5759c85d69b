#include "adapter/accelerator.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/TensorOptions.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace roundelay::adapter {
namespace {

GpuStream native_of(const c10::Stream& stream) { return static_cast<GpuStream>(stream.native_handle()); }

c10::Stream current_stream(const c10::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

CallerStream::CallerStream(GpuRuntime& runtime, c10::Device device)
    : runtime_(&runtime), stream_(current_stream(device)) {}

GpuStream CallerStream::native() const { return native_of(stream_); }

Result<GpuEventPtr> CallerStream::mark() const { return runtime_->mark(device_index(), native()); }

// Does not call at::empty: a dispatch mode of the user on this thread could call Python.
at::Tensor CallerStream::allocate(at::IntArrayRef shape, at::ScalarType type) const {
  const c10::StreamGuard guard(stream_);
  const c10::DispatchKeySet keys(c10::computeDispatchKey(type, at::kStrided, stream_.device()));
  c10::Allocator* const allocator = c10::GetAllocator(stream_.device_type());
  return at::Tensor(at::detail::empty_generic(shape, allocator, keys, type, std::nullopt));
}

c10::Stream CallerStream::current() const { return current_stream(stream_.device()); }

Status CallerStream::hold_back_current(const GpuEvent& event) const {
  return event.hold_back(native_of(current()));
}

void lend_to_current_stream(const at::Tensor& tensor) {
  if (tensor.layout() == at::kSparse) {
    lend_to_current_stream(tensor._indices());
    lend_to_current_stream(tensor._values());
    return;
  }
  const c10::Device device = tensor.device();
  if (device.is_cpu() || !tensor.has_storage()) return;
  c10::impl::VirtualGuardImpl(device.type())
      .recordDataPtrOnStream(tensor.storage().data_ptr(), current_stream(device));
}

void Accelerator::serve(GpuRuntime& runtime, kernels::GpuKernels& kernels, c10::DeviceType type) {
  MutexLock lock(mutex_);
  runtime_ = &runtime;
  kernels_ = &kernels;
  type_ = type;
}

Result<std::optional<CallerStream>> Accelerator::stream_for(const c10::Device& device,
                                                            const std::string& label) {
  if (device.is_cpu()) return std::optional<CallerStream>();
  MutexLock lock(mutex_);
  const std::string where = label + " is on device " + device.str() + ", but ";
  if (runtime_ == nullptr && device.is_cuda())
    return Status::invalid(where +
                           "this build of Roundelay has no CUDA part; install Roundelay again where nvcc is, "
                           "or move the tensor with cpu()");
  if (runtime_ == nullptr || device.type() != type_)
    return Status::invalid(where + "Roundelay works on the CPU and on CUDA devices; move it with cpu()");
  std::optional<CallerStream> stream(std::in_place, *runtime_, device);
  const Result<bool> captures = runtime_->captures(stream->device_index(), stream->native());
  if (!captures.ok()) return captures.status();
  if (*captures) {
    return Status::invalid(label +
                           " is in a stream from which a graph is being captured, but a collective "
                           "cannot be part of a graph: capture the forward and the backward alone, as "
                           "torch.cuda.make_graphed_callables does, and submit outside");
  }
  return stream;
}

kernels::GpuKernels* Accelerator::kernels() {
  MutexLock lock(mutex_);
  return kernels_;
}

}  // namespace roundelay::adapter
