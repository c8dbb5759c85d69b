#include "adapter/check.h"

#include <ATen/MemoryOverlap.h>

#include <optional>

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

Status refuse(const std::string& label, const std::string& what) {
  return Status::invalid(label + " " + what);
}

std::string text_of(at::IntArrayRef sizes) {
  std::string text = "[";
  for (const std::int64_t size : sizes) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

}  // namespace

DType dtype_of(const at::Tensor& tensor) { return *dtype_of(tensor.scalar_type()); }

Status check_input(const at::Tensor& tensor, const std::string& label) {
  if (!tensor.defined()) return refuse(label, "is undefined");
  if (tensor.is_nested()) return refuse(label, "is nested; pass its components");
  if (tensor.layout() != at::kStrided) return refuse(label, "is sparse; make it dense with to_dense()");
  if (tensor.is_quantized()) return refuse(label, "is quantized; convert it with dequantize()");
  if (tensor.is_complex()) return refuse(label, "is complex; pass torch.view_as_real() of it");
  if (!tensor.has_storage())
    return refuse(label, "has no memory of its own (a fake or wrapped tensor?); pass a plain tensor");
  if (!dtype_of(tensor.scalar_type()))
    return refuse(
        label,
        std::string("has dtype ") + c10::toString(tensor.scalar_type()) +
            "; supported are float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8, bool");
  return {};
}

Status check_output(const at::Tensor& input, const at::Tensor& output, const std::string& label) {
  ROUNDELAY_RETURN_IF_ERROR(check_input(output, label));
  if (output.scalar_type() != input.scalar_type())
    return refuse(label, std::string("has dtype ") + c10::toString(input.scalar_type()) +
                             " but its output has " + c10::toString(output.scalar_type()));
  if (output.device() != input.device())
    return refuse(label, "is on device " + input.device().str() + " but its output on " +
                             output.device().str() + "; make the output there");
  if (output.sizes() != input.sizes())
    return refuse(label,
                  "has shape " + text_of(input.sizes()) + " but its output has " + text_of(output.sizes()));
  if (at::has_internal_overlap(output) == at::MemOverlap::Yes)
    return refuse(label,
                  "has an output whose elements share memory (an expanded tensor?); pass a clone() of it");
  return {};
}

}  // namespace roundelay::adapter
