// Every operator on the fake device. It runs on the CPU with copies that wait for the current stream, and its
// results are written when that stream reaches them. Copies between tensors of the device wait for nothing.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <torch/library.h>

#include <array>
#include <tuple>

#include "tests/cpp/fake_gpu/device.h"
#include "tests/cpp/fake_gpu/operators.h"
#include "tests/cpp/fake_gpu/strict.h"

namespace roundelay::fake_gpu {
namespace {

using at::IntArrayRef;
using at::Tensor;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

Tensor empty(IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout> /*layout*/,
             std::optional<at::Device> device, std::optional<bool> /*pinned*/,
             std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return Tensor(at::detail::empty_generic(size, allocator(), kKeys, c10::dtype_or_default(type), format));
}

Tensor empty_strided(IntArrayRef size, IntArrayRef stride, std::optional<at::ScalarType> type,
                     std::optional<at::Layout> /*layout*/, std::optional<at::Device> device,
                     std::optional<bool> /*pinned*/) {
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return Tensor(
      at::detail::empty_strided_generic(size, stride, allocator(), kKeys, c10::dtype_or_default(type)));
}

// Returns a CPU tensor on the same memory.
Tensor seen_by_cpu(const Tensor& tensor) {
  const auto options = at::TensorOptions(at::kCPU).dtype(tensor.scalar_type());
  if (tensor.numel() == 0) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  Tensor seen = at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(), tensor.strides(), options);
  if (tensor.is_neg()) seen._set_neg(true);
  return seen;
}

}  // namespace

Tensor read(const Tensor& tensor) {
  if (tensor.is_cpu()) return tensor.clone();
  drain(current_stream(tensor.device().index()));
  return seen_by_cpu(tensor).clone();
}

namespace {

std::shared_ptr<void> hold(const Tensor& tensor) {
  const auto* const first = static_cast<const std::byte*>(tensor.storage().data());
  return gpu().hold({first, tensor.storage().nbytes()});
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool /*non_blocking*/) {
  const c10::impl::ExcludeDispatchKeyGuard no_autograd(c10::autograd_dispatch_keyset);
  if (to.is_cpu()) {
    to.copy_(read(from));
    return to;
  }
  const bool here = from.device() == to.device();
  enqueue(current_stream(to.device().index()),
          [values = here ? seen_by_cpu(from) : read(from), target = seen_by_cpu(to),
           read_from = here ? hold(from) : nullptr, held = hold(to)] {
            const c10::InferenceMode any_tensor;  // otherwise tensors made in this mode could not be changed
            target.copy_(values);
          });
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  if (from.sizes() != to.sizes()) to.resize_(from.sizes());
  return copy_from(from, to, false);
}

const Tensor& resize(const Tensor& self, IntArrayRef size, std::optional<at::MemoryFormat> /*format*/) {
  const auto bytes = at::detail::computeStorageNbytesContiguous(
      size, self.itemsize(), static_cast<std::size_t>(self.storage_offset()));
  if (bytes > self.storage().nbytes()) {
    drain(current_stream(self.device().index()));
    c10::DataPtr grown = allocator()->allocate(bytes);
    const std::size_t kept = self.storage().nbytes();
    if (kept > 0) allocator()->copy_data(grown.get(), self.storage().data(), kept);
    self.storage().set_data_ptr_noswap(std::move(grown));
    self.storage().set_nbytes(bytes);
  }
  self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return self;
}

at::Scalar local_scalar(const Tensor& self) { return at::_local_scalar_dense(read(self)); }

Tensor& set_storage(Tensor& self, at::Storage storage, std::int64_t offset, IntArrayRef size,
                    IntArrayRef stride) {
  return at::native::set_storage_cpu_(self, std::move(storage), offset, size, stride);
}

std::optional<Tensor> read_if_any(const std::optional<Tensor>& tensor) {
  return tensor && tensor->defined() ? std::optional<Tensor>(read(*tensor)) : std::nullopt;
}

Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                   IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool transposed,
                   IntArrayRef output_padding, std::int64_t groups) {
  expect_one_device("convolution", {input, weight, bias.value_or(Tensor())});
  return at::convolution(read(input), read(weight), read_if_any(bias), stride, padding, dilation, transposed,
                         output_padding, groups)
      .to(input.device());
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& slope, const Tensor& input,
                                                        const Tensor& weight, IntArrayRef stride,
                                                        IntArrayRef padding, IntArrayRef dilation,
                                                        bool transposed, IntArrayRef output_padding,
                                                        std::int64_t groups, std::array<bool, 3> wanted) {
  expect_one_device("convolution_backward", {slope, input, weight});
  const std::array<std::int64_t, 1> biases{weight.size(transposed ? 1 : 0)};
  const auto [x, w, b] =
      at::convolution_backward(read(slope), read(input), read(weight), IntArrayRef(biases), stride, padding,
                               dilation, transposed, output_padding, groups, wanted);
  const auto back = [&](const Tensor& one) { return one.defined() ? one.to(input.device()) : one; };
  return {back(x), back(w), back(b)};
}

// The schema does not say that it changes the running statistics, so the fallback would not copy them back.
std::tuple<Tensor, Tensor, Tensor> batch_norm(const Tensor& input, const std::optional<Tensor>& weight,
                                              const std::optional<Tensor>& bias,
                                              const std::optional<Tensor>& mean,
                                              const std::optional<Tensor>& variance, bool training,
                                              double momentum, double eps) {
  if (!mean || !mean->defined())
    return at::_native_batch_norm_legit(input, weight, bias, training, momentum, eps);
  Tensor running_mean = *mean;
  Tensor running_variance = *variance;
  return at::_native_batch_norm_legit(input, weight, bias, running_mean, running_variance, training, momentum,
                                      eps);
}

void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  expect_one_device(op, *stack);
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("view", at::native::view);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("resize_", resize);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar);
  m.impl("set_.source_Tensor", at::native::set_tensor_);
  m.impl("set_.source_Storage", at::native::set_);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("native_batch_norm", batch_norm);
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
}

}  // namespace
}  // namespace roundelay::fake_gpu
