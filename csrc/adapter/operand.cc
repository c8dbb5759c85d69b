#include "adapter/operand.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <optional>
#include <utility>

#include "adapter/check.h"

namespace roundelay::adapter {
namespace {

// Returns true if memory contains the elements in the order of their indices, with their own values.
bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_neg() && !tensor.is_conj() && !tensor._is_zerotensor();
}

// Returns how many of the core's elements are in one of the tensor's.
std::int64_t parts_of_element(const at::Tensor& tensor) { return tensor.is_complex() ? 2 : 1; }

// Returns the shape that the core sees: that of torch.view_as_real() for a complex tensor.
std::vector<std::int64_t> real_shape(const at::Tensor& tensor) {
  std::vector<std::int64_t> shape = tensor.sizes().vec();
  if (tensor.is_complex()) shape.push_back(parts_of_element(tensor));
  return shape;
}

at::Tensor contiguous_like(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
}

at::Tensor contiguous_copy(const at::Tensor& tensor) {
  at::Tensor copy = contiguous_like(tensor);
  copy.copy_(tensor);
  return copy;
}

// Names an operation's tensor in messages.
std::string label(const std::string& name, std::size_t index, std::size_t count) {
  const std::string quoted = name.empty() ? "" : "'" + name + "'";
  if (count > 1) return "tensor " + std::to_string(index) + (name.empty() ? "" : " of " + quoted);
  return name.empty() ? "the tensor" : "tensor " + quoted;
}

// Makes the tensor of received splits: int32 as Horovod's, int64 if a number needs it.
at::Tensor splits_tensor(const std::vector<std::int64_t>& rows) {
  const c10::InferenceMode normal(false);
  const at::Tensor splits = at::tensor(rows, at::kLong);
  const bool small = std::all_of(rows.begin(), rows.end(), [](std::int64_t count) {
    return count <= std::numeric_limits<std::int32_t>::max();
  });
  return small ? splits.to(at::kInt) : splits;
}

// Runs a function and turns torch's exceptions, such as out of memory, into kUnavailable.
template <typename Make>
auto caught(Make&& make) -> Result<decltype(make())> {
  try {
    return make();
  } catch (const c10::Error& error) {
    return Status::unavailable(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return Status::unavailable(error.what());
  }
}

}  // namespace

Operand::Item Operand::item(const at::Tensor& input) {
  Item item;
  item.source = is_plain(input) ? input : contiguous_copy(input);
  item.type = input.scalar_type();
  item.input_data = static_cast<const std::byte*>(item.source.const_data_ptr());
  return item;
}

Operand::Item Operand::item(const at::Tensor& input, const at::Tensor& output) {
  Item item;
  item.output = output;
  item.type = input.scalar_type();
  if (input.is_same(output)) {
    item.source = item.target = is_plain(input) ? input : contiguous_copy(input);
  } else {
    item.target = is_plain(output) ? output : contiguous_like(output);
    const bool same_memory = is_plain(input) && input.const_data_ptr() == item.target.const_data_ptr();
    const bool apart = at::get_overlap_status(input, item.target) == at::MemOverlapStatus::No;
    item.source = is_plain(input) && (same_memory || apart) ? input : contiguous_copy(input);
  }
  // The writable address comes first: asking for it may move a copy-on-write tensor.
  item.output_data = static_cast<std::byte*>(item.target.mutable_data_ptr());
  item.input_data = static_cast<const std::byte*>(item.source.const_data_ptr());
  return item;
}

// Makes an empty operand on the device of these tensors. Errors: kInvalidArgument (several devices).
Result<OperandPtr> Operand::make_on_one_device(const std::vector<at::Tensor>& inputs, const std::string& name,
                                               Accelerator& accelerator) {
  OperandPtr operand(new Operand);
  if (inputs.empty()) return operand;
  const c10::Device device = inputs.front().device();
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].device() != device)
      return Status::invalid(label(name, i, inputs.size()) + " is on device " + inputs[i].device().str() +
                             ", but tensor 0 on " + device.str() +
                             "; group tensors of one device, or move it there");
  }
  auto stream = accelerator.stream_for(device, label(name, 0, inputs.size()));
  if (!stream.ok()) return stream.status();
  operand->stream_ = *stream;
  return operand;
}

Result<OperandPtr> Operand::make(const std::vector<at::Tensor>& inputs,
                                 const std::vector<at::Tensor>& outputs, const std::string& name,
                                 Accelerator& accelerator) {
  if (inputs.size() != outputs.size()) return Status::invalid("each tensor needs an output of its own");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string member = label(name, i, inputs.size());
    ROUNDELAY_RETURN_IF_ERROR(check_input(inputs[i], member));
    ROUNDELAY_RETURN_IF_ERROR(check_output(inputs[i], outputs[i], member));
  }
  auto made = make_on_one_device(inputs, name, accelerator);
  if (!made.ok()) return made;
  const c10::InferenceMode normal(false);
  const at::NoGradGuard no_grad;  // the other guard turns gradients on
  return caught([&] {
    OperandPtr operand = std::move(made).value();
    for (std::size_t i = 0; i < inputs.size(); ++i) operand->items_.push_back(item(inputs[i], outputs[i]));
    return operand;
  });
}

Result<OperandPtr> Operand::make(const std::vector<at::Tensor>& inputs, const std::string& name,
                                 Accelerator& accelerator) {
  for (std::size_t i = 0; i < inputs.size(); ++i)
    ROUNDELAY_RETURN_IF_ERROR(check_input(inputs[i], label(name, i, inputs.size())));
  auto made = make_on_one_device(inputs, name, accelerator);
  if (!made.ok()) return made;
  const c10::InferenceMode normal(false);
  const at::NoGradGuard no_grad;  // the other guard turns gradients on
  return caught([&] {
    OperandPtr operand = std::move(made).value();
    for (const at::Tensor& input : inputs) operand->items_.push_back(item(input));
    return operand;
  });
}

OperandPtr Operand::make_in_place(const at::Tensor& bucket, const at::Tensor& output, RegionPtr region,
                                  const std::optional<CallerStream>& stream, std::uint32_t gradients) {
  OperandPtr operand(new Operand);
  operand->gradients_ = gradients;
  operand->items_.push_back(item(bucket, bucket));
  operand->items_.back().output = output;
  operand->region_ = std::move(region);
  operand->stream_ = stream;
  return operand;
}

OperandPtr Operand::make_number() {
  OperandPtr operand(new Operand);
  operand->items_.emplace_back();
  return operand;
}

OperandPtr Operand::make_agreement() { return OperandPtr(new Operand); }

std::vector<submit::Part> Operand::parts() const {
  std::vector<submit::Part> parts;
  parts.reserve(items_.size());
  for (const Item& item : items_) {
    if (!item.source.defined()) continue;
    parts.push_back({.dtype = dtype_of(item.source),
                     .input = item.input_data,
                     .output = item.output_data,
                     .count = static_cast<std::size_t>(item.source.numel() * parts_of_element(item.source)),
                     .region = region_,
                     .gradients = gradients_});
  }
  return parts;
}

std::vector<wire::TensorSpec> Operand::specs() const {
  std::vector<wire::TensorSpec> specs;
  specs.reserve(items_.size());
  for (const Item& item : items_) {
    if (item.source.defined()) specs.push_back({dtype_of(item.source), real_shape(item.source)});
  }
  return specs;
}

Result<GpuEventPtr> Operand::ready() const { return stream_ ? stream_->mark() : GpuEventPtr(); }

Status Operand::check_reduction(ReduceOp op, const std::string& name) const {
  for (std::size_t i = 0; i < items_.size(); ++i)
    ROUNDELAY_RETURN_IF_ERROR(adapter::check_reduction(items_[i].type, op, label(name, i, items_.size())));
  return {};
}

// Does not call at::empty: a dispatch mode of the user on this thread could call Python.
Result<submit::Results::Memory> Operand::allocate(std::size_t part, const std::vector<std::int64_t>& shape) {
  const c10::InferenceMode normal(false);
  Result<at::Tensor> made = caught([&] {
    const at::ScalarType type = items_.at(part).type;
    at::IntArrayRef sizes = shape;
    if (c10::isComplexType(type)) sizes = sizes.slice(0, sizes.size() - 1);  // not that of real_shape()
    return stream_ ? stream_->allocate(sizes, type)
                   : at::Tensor(at::detail::empty_cpu(sizes, type, false, std::optional<at::MemoryFormat>{}));
  });
  if (!made.ok()) return made.status();
  Result<GpuEventPtr> free = ready();
  if (!free.ok()) return free.status();
  at::Tensor& target = items_[part].target = std::move(made).value();
  return Memory{.data = static_cast<std::byte*>(target.mutable_data_ptr()), .free = std::move(*free)};
}

void Operand::set_received_splits(std::vector<std::int64_t> rows) {
  received_splits_ = std::move(rows);
  has_received_splits_ = true;
}

bool Operand::done() const {
  if (!done_) return true;
  const Result<bool> reached = done_->reached();
  return !reached.ok() || *reached;  // a failed device does no more work
}

Status Operand::finish() {
  const bool elsewhere = stream_ && !stream_->is_current() && !region_;  // a region is not torch's memory
  if (done_) ROUNDELAY_RETURN_IF_ERROR(stream_->hold_back_current(*done_));
  for (Item& item : items_) {
    if (elsewhere && item.target.defined()) lend_to_current_stream(item.target);
    if (!item.output.defined()) continue;
    if (elsewhere && !item.target.is_same(item.output)) lend_to_current_stream(item.output);
    const c10::InferenceMode as_made(item.output.is_inference());
    const at::NoGradGuard no_grad;  // the other guard turns gradients on
    if (!item.target.is_same(item.output)) {
      item.output.copy_(item.target);
    } else if (!item.output.is_inference()) {
      item.output.unsafeGetTensorImpl()->bump_version();  // autograd must notice the write
    }
  }
  return {};
}

std::vector<at::Tensor> Operand::allocated() const {
  std::vector<at::Tensor> tensors;
  for (const Item& item : items_) {
    if (!item.output.defined() && item.target.defined()) tensors.push_back(item.target);
  }
  if (has_received_splits_) tensors.push_back(splits_tensor(received_splits_));
  return tensors;
}

void OperandDeleter::operator()(Operand* operand) const { delete operand; }

}  // namespace roundelay::adapter
