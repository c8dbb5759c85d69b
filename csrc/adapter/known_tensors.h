// Tells whether an optimizer steps the same tensors as before.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <cstddef>
#include <vector>

namespace roundelay::adapter {

// Remembers a sequence of tensors: which objects they are, of which type, and whether each requires a
// gradient. Does not keep them alive. Callers hold the GIL.
class KnownTensors {
 public:
  // Compares the next tensor of a sequence with the one that has this place in the last sequence, and takes
  // its place.
  void next(const at::Tensor& tensor);
  // Ends the sequence. Returns true if it was the last one: the same tensors, each as trainable as before,
  // and of the same type.
  [[nodiscard]] bool end();

 private:
  struct Known {
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;  // no later tensor has the address while it is here
    bool requires_grad;
    at::ScalarType type;  // model.half() changes it in place
  };

  std::vector<Known> known_;
  std::size_t place_ = 0;
  bool same_ = true;
};

}  // namespace roundelay::adapter
