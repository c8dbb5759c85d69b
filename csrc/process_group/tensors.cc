#include "process_group/tensors.h"

#include <ATen/Functions.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <string>
#include <utility>

#include "adapter/check.h"
#include "collective/marked_types.h"
#include "kernels/kernels.h"
#include "process_group/device_copies.h"
#include "process_group/errors.h"

namespace roundelay::process_group {
namespace {

// Returns whether the tensor's values lie in host memory, one after the other as they are.
bool is_plain(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

// Returns memory of the host for so many elements of such tensors. CUDA copies faster from pinned memory.
at::Tensor host_memory(std::int64_t count, const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return at::empty({count}, at::kByte);
  const at::TensorOptions options = tensors.front().options().requires_grad(false);
  return at::empty({count}, options.device(at::kCPU).pinned_memory(tensors.front().is_cuda()));
}

// Calls `copy` with each tensor and its part of the memory, in which they lie one after the other.
template <typename Copy>
void each_part(const at::Tensor& memory, const std::vector<at::Tensor>& tensors, Copy copy) {
  std::int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    copy(tensor.detach(), memory.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
}

std::function<void()> filling(const at::Tensor& memory, const std::vector<at::Tensor>& tensors) {
  return [memory, tensors] {
    each_part(memory, tensors, [](const at::Tensor& tensor, const at::Tensor& part) { part.copy_(tensor); });
  };
}

// Returns what a tensor takes of a pack: bytes that begin at such multiples can be seen as any dtype.
std::int64_t room_of(const at::Tensor& tensor) {
  constexpr std::int64_t kAlignment = 16;
  return (static_cast<std::int64_t>(tensor.nbytes()) + kAlignment - 1) / kAlignment * kAlignment;
}

// Returns the place of a tensor in a pack, as a tensor of its dtype and shape.
at::Tensor place_of(const at::Tensor& tensor, const at::Tensor& packed, std::int64_t begin) {
  const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
  return packed.narrow(0, begin, bytes).view(tensor.scalar_type()).view(tensor.sizes());
}

// Refuses tensors to which no result can be written.
std::vector<at::Tensor> writable(std::vector<at::Tensor> tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (adapter::elements_overlap(tensor)) {
      refuse("a result's elements would share memory (an expanded tensor?); pass a clone() of it");
    }
  }
  return tensors;
}

}  // namespace

void check_tensor(const at::Tensor& tensor, const char* operation) {
  const auto fail = [operation](const std::string& why) { refuse(std::string(operation) + ": " + why); };
  if (!tensor.defined()) fail("a tensor is undefined");
  if (tensor.layout() != at::kStrided) fail("a tensor is sparse; make it dense with to_dense()");
  if (is_captured(tensor.device())) {
    fail(
        "a graph is being captured from this stream, and the call cannot be part of it: capture the forward "
        "and the backward alone, as torch.cuda.make_graphed_callables does, and call outside");
  }
}

void check_tensors(const std::vector<at::Tensor>& tensors, const char* operation) {
  if (tensors.empty()) refuse(std::string(operation) + ": requires at least one tensor");
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor, operation);
    if (tensor.scalar_type() != tensors.front().scalar_type()) {
      refuse(std::string(operation) + ": the tensors are of " + c10::toString(tensors.front().scalar_type()) +
             " and " + c10::toString(tensor.scalar_type()));
    }
  }
}

const at::Tensor& only_tensor(const std::vector<at::Tensor>& tensors, const char* operation) {
  if (tensors.size() != 1) {
    refuse(std::string(operation) + ": requires a single tensor, and has " + std::to_string(tensors.size()));
  }
  check_tensor(tensors.front(), operation);
  return tensors.front();
}

DType moved_dtype(const at::Tensor& tensor) {
  return adapter::dtype_of(c10::toRealValueType(tensor.scalar_type())).value_or(DType::kUInt8);
}

DType marked_type(at::ScalarType type) {
  using collective::MarkedType;
  switch (type) {
    case at::kComplexHalf:
      return collective::in_mark(MarkedType::kComplex32);
    case at::kComplexFloat:
      return collective::in_mark(MarkedType::kComplex64);
    case at::kComplexDouble:
      return collective::in_mark(MarkedType::kComplex128);
    case at::kFloat4_e2m1fn_x2:
      return collective::in_mark(MarkedType::kFloat4E2M1FNX2);
    default:
      return adapter::dtype_of(type).value_or(DType::kUInt8);
  }
}

Memory::Memory(std::vector<at::Tensor> tensors, bool has_values) : tensors_(std::move(tensors)) {
  if (tensors_.size() == 1 && is_plain(tensors_.front())) {
    memory_ = tensors_.front();
    return;
  }
  copied_ = true;
  std::int64_t count = 0;
  for (const at::Tensor& tensor : tensors_) count += tensor.numel();
  memory_ = host_memory(count, tensors_);
  begins_ = has_values && !device_of(tensors_).is_cpu();
  if (has_values && !begins_) filling(memory_, tensors_)();
}

Memory Memory::input(const at::Tensor& tensor) { return {{tensor}, true}; }
Memory Memory::output(const at::Tensor& tensor) { return {writable({tensor}), false}; }
Memory Memory::in_place(const at::Tensor& tensor) { return {writable({tensor}), true}; }
Memory Memory::inputs(const std::vector<at::Tensor>& tensors) { return {tensors, true}; }
Memory Memory::outputs(const std::vector<at::Tensor>& tensors) { return {writable(tensors), false}; }
Memory Memory::in_place(const std::vector<at::Tensor>& tensors) { return {writable(tensors), true}; }

void Memory::copy() {
  if (!std::exchange(copied_, true)) memory_ = memory_.detach().view(-1).clone();
}

void Memory::part_from(ByteSpan result) {
  const ByteSpan own = bytes();
  const std::less<const std::byte*> before;
  if (before(own.data(), result.data() + result.size()) && before(result.data(), own.data() + own.size()))
    copy();
}

void Memory::multiply(DType dtype, double factor) {
  copy();
  const auto multiply = [memory = memory_, dtype, factor] {
    const std::size_t count = static_cast<std::size_t>(memory.nbytes()) / size_of(dtype);
    kernels::scale_copy(memory.data_ptr(), memory.data_ptr(), count, dtype, {.factor = factor});
  };
  if (begins_) {
    multiply_ = multiply;
  } else {
    multiply();
  }
}

ByteSpan Memory::bytes() const {
  return {static_cast<std::byte*>(memory_.data_ptr()), static_cast<std::size_t>(memory_.nbytes())};
}

std::function<void()> Memory::begin() const {
  if (!begins_) return {};
  return [fill = filling(memory_, tensors_), multiply = multiply_] {
    fill();
    if (multiply) multiply();
  };
}

std::function<void()> Memory::finish() const {
  if (!copied_) return {};
  return [tensors = tensors_, memory = memory_] {
    each_part(memory, tensors, [](const at::Tensor& tensor, const at::Tensor& part) { tensor.copy_(part); });
  };
}

at::Tensor pack(const std::vector<at::Tensor>& tensors) {
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += room_of(tensor);
  at::Tensor packed = at::zeros({bytes}, at::kByte);  // zeros: what lies between tensors travels, too
  std::int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    place_of(tensor, packed, begin).copy_(tensor.detach());
    begin += room_of(tensor);
  }
  return packed;
}

void unpack(const at::Tensor& packed, const std::vector<at::Tensor>& tensors) {
  std::int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    tensor.detach().copy_(place_of(tensor, packed, begin));
    begin += room_of(tensor);
  }
}

std::vector<std::size_t> sizes_of(const std::vector<at::Tensor>& tensors) {
  std::vector<std::size_t> sizes;
  sizes.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) sizes.push_back(static_cast<std::size_t>(tensor.nbytes()));
  return sizes;
}

}  // namespace roundelay::process_group
