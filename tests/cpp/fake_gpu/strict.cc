#include "tests/cpp/fake_gpu/strict.h"

#include <ATen/core/Generator.h>
#include <ATen/core/List.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

namespace roundelay::fake_gpu {
namespace {

using at::IValue;
using at::Tensor;

// The device of an operator's arguments.
class OneDevice {
 public:
  explicit OneDevice(std::string name) : name_(std::move(name)) {}

  void take(const Tensor& tensor) {
    if (!tensor.defined() || (tensor.is_cpu() && tensor.dim() == 0)) return;
    if (!device_) device_ = tensor.device();
    TORCH_CHECK(*device_ == tensor.device(), name_,
                ": expected all tensors to be on the same device, but found ", "at least two devices, ",
                *device_, " and ", tensor.device(), " (fake GPU)");
  }
  void take(const IValue& argument, const std::string& name) {
    if (argument.isTensor()) {
      take(argument.toTensor());
    } else if (argument.isTensorList()) {
      for (const Tensor& tensor : argument.toTensorVector()) take(tensor);
    } else if (argument.isOptionalTensorList() && name != "indices") {
      for (const std::optional<Tensor>& tensor : argument.toOptionalTensorVector())
        take(tensor.value_or(Tensor()));
    } else if (argument.isGenerator()) {
      generator_ = argument.toGenerator();
    }
  }
  void expect_its_generator() const {
    if (!generator_.defined() || !device_) return;
    TORCH_CHECK(generator_.device().type() == device_->type(), name_, ": expected a '", device_->type(),
                "' device type for generator but found '", generator_.device().type(), "' (fake GPU)");
  }

 private:
  const std::string name_;
  std::optional<c10::Device> device_;
  at::Generator generator_;
};

}  // namespace

void expect_one_device(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  const std::size_t first = stack.size() - arguments.size();
  OneDevice device(op.schema().name());
  for (std::size_t i = 0; i < arguments.size(); ++i) device.take(stack[first + i], arguments[i].name());
  device.expect_its_generator();
}

void expect_one_device(const char* name, std::initializer_list<Tensor> tensors) {
  OneDevice device(name);
  for (const Tensor& tensor : tensors) device.take(tensor);
}

}  // namespace roundelay::fake_gpu
