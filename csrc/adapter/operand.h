// One operation's tensors on their way through the core, which knows contiguous memory only.
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

// Keeps the tensors alive. What is not contiguous is staged: copied here, and back by finish(). On a GPU all
// this is enqueued in the caller's stream.
// All calls on Python's threads, but those of Results; the destructor needs the GIL.
class Operand final : public submit::Results {
 public:
  // Each output may be its input (in place). `name` is for the error's text.
  // Errors: kInvalidArgument, naming the tensor, what is wrong with it and the cure; kUnavailable (no
  // memory).
  static Result<OperandPtr> make(const std::vector<at::Tensor>& inputs,
                                 const std::vector<at::Tensor>& outputs, const std::string& name,
                                 Accelerator& accelerator);
  // The core allocates the outputs. Errors: as make().
  static Result<OperandPtr> make(const std::vector<at::Tensor>& inputs, const std::string& name,
                                 Accelerator& accelerator);
  // A bucket: contiguous, in this region; on a GPU submitted from `stream`.
  static OperandPtr make_in_place(const at::Tensor& tensor, RegionPtr region,
                                  std::optional<CallerStream> stream);
  // No input; the core allocates an output of int64.
  static OperandPtr make_number();

  [[nodiscard]] std::vector<submit::Part> parts() const;
  [[nodiscard]] std::vector<wire::TensorSpec> specs() const;

  // The GPU that all of it is on; -1: the CPU.
  [[nodiscard]] int gpu() const { return stream_ ? stream_->device_index() : -1; }
  // Inputs are there, and outputs free, behind what is in the caller's stream now. Null on the CPU.
  [[nodiscard]] Result<GpuEventPtr> ready() const;

  Result<Memory> allocate(std::size_t part, const std::vector<std::int64_t>& shape) override;
  void set_received_splits(std::vector<std::int64_t> rows) override;
  void set_done(GpuEventPtr event) override { done_ = std::move(event); }

  // The operation succeeded: puts results where the caller wants them; on a GPU in what is the calling
  // thread's current stream by now, and the host goes on. May run without the GIL. Errors: as GpuEvent.
  [[nodiscard]] Status finish();
  // Once the operation is done: whether results are there, and nobody else works on its memory.
  [[nodiscard]] bool done() const;
  // After finish(): whether memory may go although it is not done(), as its stream waits for that.
  [[nodiscard]] bool may_go() const { return !stream_ || stream_->is_current() || done(); }
  // What the core allocated, and after an alltoall the received splits (int32; int64 where
  // a number needs it).
  [[nodiscard]] std::vector<at::Tensor> allocated() const;

 private:
  struct Item {
    at::Tensor source;  // contiguous: the input or a copy of it; undefined: none
    at::Tensor target;  // contiguous: the output, what is copied to it, or what allocate() made
    at::Tensor output;  // the caller's; undefined: `target` is for it
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
  RegionPtr region_;  // of the only item
  std::optional<CallerStream> stream_;
  GpuEventPtr done_;
  std::vector<std::int64_t> received_splits_;
  bool has_received_splits_ = false;
};

}  // namespace roundelay::adapter
