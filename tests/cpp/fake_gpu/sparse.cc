// Sparse tensors of the fake device. Their parts are dense tensors there; every operator runs on the CPU with
// copies. at::native::cpu_fallback supports dense tensors only.
#include <ATen/ATen.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_copy_from_and_resize.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/values_native.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "tests/cpp/fake_gpu/operators.h"
#include "tests/cpp/fake_gpu/strict.h"

namespace roundelay::fake_gpu {
namespace {

using at::IValue;
using at::Tensor;

Tensor on_cpu(const Tensor& tensor) {
  if (!tensor.is_privateuseone()) return tensor;
  if (!tensor.is_sparse()) return read(tensor);
  return at::_sparse_coo_tensor_unsafe(read(tensor._indices()), read(tensor._values()), tensor.sizes())
      ._coalesced_(tensor.is_coalesced());
}

Tensor on_device(const Tensor& tensor, c10::Device device) {
  if (!tensor.is_sparse()) return tensor.to(device);
  return at::_sparse_coo_tensor_unsafe(tensor._indices().to(device), tensor._values().to(device),
                                       tensor.sizes())
      ._coalesced_(tensor.is_coalesced());
}

void write(const Tensor& values, const Tensor& target) {
  if (!target.is_sparse()) {
    at::_copy_from_and_resize(values, target);
    return;
  }
  const Tensor made = on_device(values, target.device());
  at::SparseTensorImpl* const impl = at::sparse::get_sparse_impl(target);
  impl->raw_resize_(made.sparse_dim(), made.dense_dim(), made.sizes());
  impl->set_indices_and_values_unsafe(made._indices(), made._values());
  impl->set_coalesced(made.is_coalesced());
}

std::optional<c10::Device> device_of(const std::vector<IValue>& arguments) {
  for (const IValue& argument : arguments) {
    if (argument.isTensor() && argument.toTensor().is_privateuseone()) return argument.toTensor().device();
    if (argument.isDevice() && argument.toDevice().is_privateuseone()) return argument.toDevice();
  }
  return std::nullopt;
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// Returns the argument that this result aliases; nothing if there is none.
std::optional<std::size_t> given(const c10::Argument& result, const c10::FunctionSchema& schema) {
  if (!is_written(result)) return std::nullopt;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (is_written(argument) && *argument.alias_info() == *result.alias_info()) return i;
  }
  return std::nullopt;
}

void through_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  expect_one_device(op, *stack);
  const c10::FunctionSchema& schema = op.schema();
  const auto first = stack->end() - static_cast<std::ptrdiff_t>(schema.arguments().size());
  const std::vector<IValue> arguments(first, stack->end());
  const std::optional<c10::Device> device = device_of(arguments);
  TORCH_CHECK(device, "the fake GPU cannot run ", op.operator_name());
  std::for_each(first, stack->end(), [](IValue& argument) {
    if (argument.isTensor() && argument.toTensor().defined()) argument = on_cpu(argument.toTensor());
    if (argument.isDevice()) argument = c10::Device(c10::kCPU);
  });
  const std::vector<IValue> copies(first, stack->end());
  op.callBoxed(stack);

  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (is_written(schema.arguments()[i]) && !copies[i].is(arguments[i]))
      write(copies[i].toTensor(), arguments[i].toTensor());
  }
  const std::size_t results = stack->size() - schema.returns().size();
  for (std::size_t i = 0; i < schema.returns().size(); ++i) {
    IValue& result = (*stack)[results + i];
    if (const auto which = given(schema.returns()[i], schema)) {
      result = arguments[*which];
    } else if (result.isTensor() && result.toTensor().defined()) {
      result = on_device(result.toTensor(), *device);
    }
  }
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&through_cpu>());
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_sparse_coo_tensor_with_dims_and_tensors", at::native::new_with_dims_and_tensor_sparse_symint);
  m.impl("_indices", at::native::_indices_sparse);
  m.impl("_values", at::native::_values_sparse);
  m.impl("indices", at::native::indices_sparse);
  m.impl("values", at::native::values_sparse);
  m.impl("_nnz", at::native::_nnz_sparse);
  m.impl("sparse_dim", at::native::sparse_dim_sparse);
  m.impl("dense_dim", at::native::dense_dim_sparse);
  m.impl("is_coalesced", at::native::is_coalesced_sparse);
  m.impl("_coalesced_", at::native::_coalesced_sparse_);
  // The fallback does not get these: torch has them for all devices, through things that only dense tensors
  // have.
  m.impl("clone", torch::CppFunction::makeFromBoxedFunction<&through_cpu>());
  m.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&through_cpu>());
}

// Operators on dense tensors with sparse results.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_to_sparse", torch::CppFunction::makeFromBoxedFunction<&through_cpu>());
  m.impl("_to_sparse.sparse_dim", torch::CppFunction::makeFromBoxedFunction<&through_cpu>());
}

}  // namespace
}  // namespace roundelay::fake_gpu
