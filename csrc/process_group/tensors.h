// The tensors of a process group's calls as plain memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"

namespace roundelay::process_group {

// Throws ValueError, in the name of the operation, for a tensor that cannot travel: sparse, without memory,
// in a stream from which a graph is being captured.
void check_tensor(const at::Tensor& tensor, const char* operation);
// Does so for each of them, and if they are not of one dtype.
void check_tensors(const std::vector<at::Tensor>& tensors, const char* operation);
// Returns the only tensor of a list that torch.distributed passes. Throws ValueError as check_tensor(), and
// if there are more.
const at::Tensor& only_tensor(const std::vector<at::Tensor>& tensors, const char* operation);

// Returns the core's type of a tensor's elements, of a complex one that of its parts. kUInt8, if the core has
// none: it then moves bytes.
[[nodiscard]] DType moved_dtype(const at::Tensor& tensor);
// Returns the type of such elements in a call's mark (collective/marked_types.h).
[[nodiscard]] DType marked_type(at::ScalarType type);

// Host memory in which a call works for a tensor: the tensor itself, or a copy if it is not contiguous or on
// a device.
class Memory {
 public:
  // Of an input, of a result, or of both. The copy of an input has its values, after begin(). The last two
  // throw ValueError if elements share memory.
  static Memory input(const at::Tensor& tensor);
  static Memory output(const at::Tensor& tensor);
  static Memory in_place(const at::Tensor& tensor);
  // The same of several tensors of one dtype, one after the other. A single tensor is not copied.
  static Memory inputs(const std::vector<at::Tensor>& tensors);
  static Memory outputs(const std::vector<at::Tensor>& tensors);
  static Memory in_place(const std::vector<at::Tensor>& tensors);

  // Multiplies the values, as elements of this type. The memory becomes a copy: the tensor keeps its own.
  void multiply(DType dtype, double factor);

  // Makes the memory a copy if a part of it lies in `result`, which a call writes while it reads its inputs.
  void part_from(ByteSpan result);

  [[nodiscard]] ByteSpan bytes() const;
  [[nodiscard]] const at::Tensor& tensor() const { return memory_; }
  // Returns what brings the values of a device here; empty: they are there.
  [[nodiscard]] std::function<void()> begin() const;
  // Returns what brings the result to the tensors; empty: it is there.
  [[nodiscard]] std::function<void()> finish() const;

 private:
  Memory(std::vector<at::Tensor> tensors, bool has_values);
  void copy();
  std::vector<at::Tensor> tensors_;
  at::Tensor memory_;
  bool copied_ = false;
  bool begins_ = false;             // the copy has no values yet
  std::function<void()> multiply_;  // once it has them; empty: they are as they should be
};

// Returns a tensor of bytes with the values of tensors of any dtypes, one after the other.
[[nodiscard]] at::Tensor pack(const std::vector<at::Tensor>& tensors);
// Brings such bytes to tensors. Those that were packed have the same dtypes and shapes.
void unpack(const at::Tensor& packed, const std::vector<at::Tensor>& tensors);

// Returns the size of each tensor in bytes.
[[nodiscard]] std::vector<std::size_t> sizes_of(const std::vector<at::Tensor>& tensors);

}  // namespace roundelay::process_group
