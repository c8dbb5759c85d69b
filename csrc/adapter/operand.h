// One operation's tensors on their way through the core, which knows contiguous memory only.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"

namespace roundelay::adapter {

// Keeps the tensors alive. What is not contiguous is staged: copied here, and back by finish().
// All calls on Python's threads; the destructor needs the GIL.
class Operand {
 public:
  // `output` may be `input` (in place). `name` is for the error's text.
  // Errors: kInvalidArgument, naming the tensor, what is wrong with it and the cure.
  static Result<Operand> make(const at::Tensor& input, const at::Tensor& output, const std::string& name);

  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] std::vector<std::int64_t> shape() const { return source_.sizes().vec(); }
  [[nodiscard]] const std::byte* input() const { return input_data_; }
  [[nodiscard]] std::byte* output() const { return output_data_; }

  // The result is in output(): puts it where the caller wants it. May run without the GIL.
  void finish();

 private:
  Operand(at::Tensor source, at::Tensor target, at::Tensor output, DType dtype);

  DType dtype_;
  at::Tensor source_;  // contiguous: the input or a copy of it
  at::Tensor target_;  // contiguous: the output or what is copied to it
  at::Tensor output_;  // the caller's
  std::byte* output_data_;
  const std::byte* input_data_;
};

}  // namespace roundelay::adapter
