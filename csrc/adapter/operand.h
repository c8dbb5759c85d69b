// The tensors of one operation, as contiguous memory: the core knows nothing else.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "adapter/accelerator.h"
#include "adapter/operands.h"
#include "base/region.h"
#include "base/status.h"
#include "submit/table.h"
#include "wire/messages.h"

namespace roundelay::adapter {

// Keeps the tensors alive. Copies a tensor that is not contiguous; finish() copies the result back. On a GPU
// these copies are enqueued in the caller's stream. Python's threads call all functions, except those of
// Results, which the core's threads call. The destructor needs the GIL.
class Operand final : public submit::Results {
 public:
  // Makes the operand of an operation with given outputs. Each output may be its input. `name` appears in
  // messages. Errors: kInvalidArgument, with the tensor, the problem and the cure; kUnavailable (no memory).
  static Result<OperandPtr> make(const std::vector<at::Tensor>& inputs,
                                 const std::vector<at::Tensor>& outputs, const std::string& name,
                                 Accelerator& accelerator);
  // Makes an operand whose outputs the core allocates. Errors: as make().
  static Result<OperandPtr> make(const std::vector<at::Tensor>& inputs, const std::string& name,
                                 Accelerator& accelerator);
  // Makes the operand of a bucket: a contiguous tensor in this region. finish() casts the result to `output`;
  // if that is the bucket itself, the result stays there. `stream` is the caller's on a GPU. `gradients`: the
  // number of gradients in the bucket.
  static OperandPtr make_in_place(const at::Tensor& bucket, const at::Tensor& output, RegionPtr region,
                                  const std::optional<CallerStream>& stream, std::uint32_t gradients);
  // Makes an operand without input, for a join. The core allocates an output of int64.
  static OperandPtr make_number();
  // Makes the operand of an agreement, which has no tensors.
  static OperandPtr make_agreement();

  // Checks that `op` can reduce the tensors; `name` appears in messages. Errors: those of adapter/check.h.
  [[nodiscard]] Status check_reduction(ReduceOp op, const std::string& name) const;

  // Return each input tensor as the core and the peers see it: of a complex one its real view, whose shape
  // has a further extent of 2. The memory is the operand's.
  [[nodiscard]] std::vector<submit::Part> parts() const;
  [[nodiscard]] std::vector<wire::TensorSpec> specs() const;

  // Returns the GPU of all tensors; -1: the CPU.
  [[nodiscard]] int gpu() const { return stream_ ? stream_->device_index() : -1; }
  // Returns an event after which inputs are complete and outputs are free. Null on the CPU. Errors: those of
  // base/gpu_runtime.h.
  [[nodiscard]] Result<GpuEventPtr> ready() const;

  Result<Memory> allocate(std::size_t part, const std::vector<std::int64_t>& shape) override;
  void set_received_splits(std::vector<std::int64_t> rows) override;
  void set_agreed(Agreed agreed) override { agreed_ = std::move(agreed); }
  void set_done(GpuEventPtr event) override { done_ = std::move(event); }

  // Copies results to the caller's tensors. Call it when the operation has succeeded. On a GPU it enqueues
  // the copies in the calling thread's current stream. The GIL is not needed. Errors: those of
  // base/gpu_runtime.h.
  [[nodiscard]] Status finish();
  // Returns true if the device has finished with the memory. Call it when the operation is done.
  [[nodiscard]] bool done() const;
  // Returns true if the operand may be destroyed. Call it after finish(). On a GPU, work may still be in
  // flight if later users of the memory come after it in the caller's stream.
  [[nodiscard]] bool may_go() const { return !stream_ || stream_->is_current() || done(); }
  // Returns the outputs that the core allocated, and after an alltoall the received splits (int32, or int64
  // if a number needs it).
  [[nodiscard]] std::vector<at::Tensor> allocated() const;
  // Returns the result of an agreement. Call it when the operation has succeeded.
  [[nodiscard]] const Agreed& agreed() const { return agreed_; }

 private:
  struct Item {
    at::Tensor source;  // contiguous: the input or its copy; undefined: no input
    at::Tensor target;  // contiguous: the output, its staging copy, or the result of allocate()
    at::Tensor output;  // the caller's tensor; undefined: the caller gets `target`
    at::ScalarType type = at::kLong;
    std::byte* output_data = nullptr;
    const std::byte* input_data = nullptr;
  };

  Operand() = default;
  static Result<OperandPtr> make_on_one_device(const std::vector<at::Tensor>& inputs, const std::string& name,
                                               Accelerator& accelerator);
  static Item item(const at::Tensor& input);
  static Item item(const at::Tensor& input, const at::Tensor& output);

  std::vector<Item> items_;
  RegionPtr region_;             // contains the only item, a bucket; null otherwise
  std::uint32_t gradients_ = 1;  // in that bucket
  std::optional<CallerStream> stream_;
  GpuEventPtr done_;
  std::vector<std::int64_t> received_splits_;
  bool has_received_splits_ = false;
  Agreed agreed_;
};

}  // namespace roundelay::adapter
