#include "adapter/operand.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

#include <optional>
#include <utility>

#include "adapter/operands.h"

namespace roundelay::adapter {
namespace {

std::optional<DType> dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return DType::kFloat64;
    case at::kFloat:
      return DType::kFloat32;
    case at::kHalf:
      return DType::kFloat16;
    case at::kBFloat16:
      return DType::kBFloat16;
    case at::kLong:
      return DType::kInt64;
    case at::kInt:
      return DType::kInt32;
    case at::kShort:
      return DType::kInt16;
    case at::kChar:
      return DType::kInt8;
    case at::kByte:
      return DType::kUInt8;
    case at::kBool:
      return DType::kBool;
    default:
      return std::nullopt;
  }
}

Status refuse(const std::string& name, const std::string& what) {
  return Status::invalid((name.empty() ? std::string("the tensor") : "tensor '" + name + "'") + " " + what);
}

// What the core cannot read or write, and what the caller can do instead.
Status check(const at::Tensor& tensor, const std::string& name) {
  if (!tensor.defined()) return refuse(name, "is undefined");
  if (tensor.is_nested()) return refuse(name, "is nested; pass its components");
  if (tensor.layout() != at::kStrided) return refuse(name, "is sparse; make it dense with to_dense()");
  if (tensor.is_quantized()) return refuse(name, "is quantized; convert it with dequantize()");
  if (tensor.is_complex()) return refuse(name, "is complex; pass torch.view_as_real() of it");
  if (!tensor.device().is_cpu())
    return refuse(name, "is on device " + tensor.device().str() +
                            ", but this build works on the CPU; move it with cpu()");
  if (!dtype_of(tensor.scalar_type()))
    return refuse(
        name,
        std::string("has dtype ") + c10::toString(tensor.scalar_type()) +
            "; supported are float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8, bool");
  return {};
}

std::string text_of(at::IntArrayRef sizes) {
  std::string text = "[";
  for (const std::int64_t size : sizes) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

Status check_output(const at::Tensor& input, const at::Tensor& output, const std::string& name) {
  ROUNDELAY_RETURN_IF_ERROR(check(output, name));
  if (output.scalar_type() != input.scalar_type())
    return refuse(name, std::string("has dtype ") + c10::toString(input.scalar_type()) +
                            " but its output has " + c10::toString(output.scalar_type()));
  if (output.sizes() != input.sizes())
    return refuse(name,
                  "has shape " + text_of(input.sizes()) + " but its output has " + text_of(output.sizes()));
  if (at::has_internal_overlap(output) == at::MemOverlap::Yes)
    return refuse(name,
                  "has an output whose elements share memory (an expanded tensor?); pass a clone() of it");
  return {};
}

// In memory as the core sees it: elements in order of their indices, each stored as it is.
bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_neg() && !tensor._is_zerotensor();
}

at::Tensor contiguous_like(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
}

at::Tensor contiguous_copy(const at::Tensor& tensor) {
  at::Tensor copy = contiguous_like(tensor);
  copy.copy_(tensor);
  return copy;
}

}  // namespace

Result<Operand> Operand::make(const at::Tensor& input, const at::Tensor& output, const std::string& name) {
  ROUNDELAY_RETURN_IF_ERROR(check(input, name));
  ROUNDELAY_RETURN_IF_ERROR(check_output(input, output, name));

  const at::NoGradGuard no_grad;
  const c10::InferenceMode normal(false);
  const DType dtype = *dtype_of(input.scalar_type());
  if (input.is_same(output)) {
    const at::Tensor memory = is_plain(input) ? input : contiguous_copy(input);
    return Operand(memory, memory, output, dtype);
  }
  const at::Tensor target = is_plain(output) ? output : contiguous_like(output);
  const bool same_memory = is_plain(input) && input.const_data_ptr() == target.const_data_ptr();
  const bool apart = at::get_overlap_status(input, target) == at::MemOverlapStatus::No;
  const at::Tensor source = is_plain(input) && (same_memory || apart) ? input : contiguous_copy(input);
  return Operand(source, target, output, dtype);
}

// The writable address comes first: asking for it may move a copy-on-write tensor.
Operand::Operand(at::Tensor source, at::Tensor target, at::Tensor output, DType dtype)
    : dtype_(dtype),
      source_(std::move(source)),
      target_(std::move(target)),
      output_(std::move(output)),
      output_data_(static_cast<std::byte*>(target_.mutable_data_ptr())),
      input_data_(static_cast<const std::byte*>(source_.const_data_ptr())) {}

void Operand::finish() {
  const at::NoGradGuard no_grad;
  const c10::InferenceMode as_made(output_.is_inference());
  if (!target_.is_same(output_)) {
    output_.copy_(target_);
  } else if (!output_.is_inference()) {
    output_.unsafeGetTensorImpl()->bump_version();  // autograd must notice a write behind its back
  }
}

void OperandDeleter::operator()(Operand* operand) const { delete operand; }

}  // namespace roundelay::adapter
