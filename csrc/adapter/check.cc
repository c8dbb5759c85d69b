#include "adapter/check.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace roundelay::adapter {
namespace {

constexpr const char* kReducible =
    "float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8, bool, complex64, complex128";

Status refuse(const std::string& label, const std::string& what) {
  return Status::invalid(label + " " + what);
}

std::string text_of(at::IntArrayRef sizes) {
  std::string text = "[";
  for (const std::int64_t size : sizes) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

// Walks over all elements of a tensor whose strides interleave dimensions. Returns true if two of them share
// a place in the storage.
bool some_used_twice(const at::Tensor& tensor, std::int64_t span) {
  std::vector<bool> used(static_cast<std::size_t>(span));
  std::vector<std::int64_t> index(static_cast<std::size_t>(tensor.dim()));
  std::int64_t at = 0;
  for (std::int64_t left = tensor.numel(); left > 0; --left) {
    if (used[static_cast<std::size_t>(at)]) return true;
    used[static_cast<std::size_t>(at)] = true;
    for (std::int64_t d = tensor.dim() - 1; d >= 0; --d) {
      at += tensor.stride(d);
      if (++index[static_cast<std::size_t>(d)] < tensor.size(d)) break;
      at -= tensor.stride(d) * tensor.size(d);
      index[static_cast<std::size_t>(d)] = 0;
    }
  }
  return false;
}

// Returns true if a tensor with elements has no memory where they could be: storage alone does not tell. Its
// device is checked elsewhere.
bool lacks_memory(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return true;
  if (tensor.numel() == 0 || tensor.is_meta() || tensor._is_zerotensor()) return false;
  try {
    return tensor.storage().data() == nullptr;
  } catch (const c10::Error&) {  // torch's functional tensors do not let anyone look
    return true;
  }
}

}  // namespace

// Extends torch's own test, which cannot decide about tensors that are neither dense nor expanded, such as
// those of as_strided.
bool elements_overlap(const at::Tensor& tensor) {
  const at::MemOverlap known = at::has_internal_overlap(tensor);
  if (known != at::MemOverlap::TooHard || tensor.numel() < 2) return known == at::MemOverlap::Yes;
  std::vector<std::pair<std::int64_t, std::int64_t>> dimensions;  // stride, size
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) > 1) dimensions.emplace_back(tensor.stride(d), tensor.size(d));
  }
  std::sort(dimensions.begin(), dimensions.end());
  std::int64_t span = 1;  // the number of elements that the dimensions so far span
  bool nested = true;
  for (const auto& [stride, size] : dimensions) {
    nested = nested && stride >= span;
    span += stride * (size - 1);
  }
  return !nested && some_used_twice(tensor, span);
}

std::optional<DType> reducible_dtype_of(at::ScalarType type) {
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

std::optional<DType> dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kUInt16:
      return DType::kUInt16;
    case at::kUInt32:
      return DType::kUInt32;
    case at::kUInt64:
      return DType::kUInt64;
    case at::kFloat8_e4m3fn:
      return DType::kFloat8E4M3FN;
    case at::kFloat8_e4m3fnuz:
      return DType::kFloat8E4M3FNUZ;
    case at::kFloat8_e5m2:
      return DType::kFloat8E5M2;
    case at::kFloat8_e5m2fnuz:
      return DType::kFloat8E5M2FNUZ;
    case at::kFloat8_e8m0fnu:
      return DType::kFloat8E8M0FNU;
    default:
      return reducible_dtype_of(type);
  }
}

DType dtype_of(const at::Tensor& tensor) { return *dtype_of(c10::toRealValueType(tensor.scalar_type())); }

Status check_input(const at::Tensor& tensor, const std::string& label) {
  if (!tensor.defined()) return refuse(label, "is undefined");
  if (tensor.is_nested()) return refuse(label, "is nested; pass its components");
  if (tensor.layout() != at::kStrided) return refuse(label, "is sparse; make it dense with to_dense()");
  if (tensor.is_quantized()) return refuse(label, "is quantized; convert it with dequantize()");
  if (tensor.scalar_type() == at::kComplexHalf)
    return refuse(label, "is complex32, which few functions of torch take; pass torch.view_as_real() of it");
  if (lacks_memory(tensor))
    return refuse(label, "has no memory (a fake tensor, or a wrapper of others?); pass a plain tensor");
  if (!dtype_of(c10::toRealValueType(tensor.scalar_type())))
    return refuse(label, std::string("has dtype ") + c10::toString(tensor.scalar_type()) +
                             "; supported are " + kReducible +
                             " and, where nothing is added up, uint16 to uint64 and float8");
  return {};
}

Status check_reduction(at::ScalarType type, ReduceOp op, const std::string& label) {
  if (!reducible_dtype_of(c10::toRealValueType(type)))
    return refuse(label, std::string("has dtype ") + c10::toString(type) +
                             ", which is never added up; supported are " + kReducible);
  if (!c10::isComplexType(type) || op == ReduceOp::kSum || op == ReduceOp::kAverage) return {};
  return refuse(label, "is complex, which op=" + std::string(name_of(op)) +
                           " cannot reduce; use Average or Sum, or pass torch.view_as_real() of it");
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
  if (elements_overlap(output))
    return refuse(label,
                  "has an output whose elements share memory (an expanded tensor?); pass a clone() of it");
  return {};
}

}  // namespace roundelay::adapter
