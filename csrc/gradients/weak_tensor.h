// Tensors that something else keeps alive.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <optional>
#include <utility>

namespace roundelay::gradients {

// Python owns tensors that may have hooks, as its garbage collector sees no cycle that goes through C++.
class WeakTensor {
 public:
  explicit WeakTensor(const at::Tensor& tensor) : impl_(tensor.getIntrusivePtr()) {}

  // Returns the tensor; undefined if it no longer exists.
  [[nodiscard]] at::Tensor lock() const {
    auto impl = impl_.lock();
    return impl ? at::Tensor(std::move(impl)) : at::Tensor();
  }
  // Returns whether `tensor` is this object. No later tensor has the address while this is here.
  [[nodiscard]] bool is(const at::Tensor& tensor) const {
    return impl_._unsafe_get_target() == tensor.unsafeGetTensorImpl();
  }

 private:
  c10::weak_intrusive_ptr<c10::TensorImpl> impl_;
};

// Recognises a tensor, and notices changes of its values.
class TensorVersion {
 public:
  // `changed`: the values were changed already, in a way that the tensor's version does not tell. A tensor of
  // inference mode, which has no version, counts as changed.
  explicit TensorVersion(const at::Tensor& tensor, bool changed = false) : tensor_(tensor) {
    if (!changed && tensor.defined() && !tensor.is_inference()) version_ = tensor._version();
  }

  // Returns whether it was given as changed.
  [[nodiscard]] bool outdated() const { return !version_; }
  // Returns whether `tensor` is this object, changed or not.
  [[nodiscard]] bool is(const at::Tensor& tensor) const { return tensor_.is(tensor); }
  // Returns whether `tensor` is this object, unchanged. An undefined one is not.
  [[nodiscard]] bool current(const at::Tensor& tensor) const {
    return version_ && is(tensor) && tensor._version() == *version_;
  }

 private:
  WeakTensor tensor_;
  std::optional<std::int64_t> version_;  // nothing: it is outdated
};

}  // namespace roundelay::gradients
