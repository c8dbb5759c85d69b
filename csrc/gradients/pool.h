// The gradients of one optimizer, of one device and type, in one region of memory. Each parameter has an
// entry; a bucket is a range of entries that is reduced in place.
//
// Where results have another type than the gradients that travel, the pool has a second memory for them, the
// *result memory*, of the parameters' type. Its entries have the same order and padding, counted in elements.
// When a bucket was reduced, one copy casts all its results into it. They become the `.grad` of the
// parameters, whose tensors are made when the bucket is submitted.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapter/accelerator.h"
#include "adapter/operands.h"
#include "adapter/submission.h"
#include "base/region.h"
#include "base/status.h"
#include "complete/handles.h"
#include "gradients/pool_memory.h"
#include "gradients/technique_choice.h"
#include "runtime/context.h"

namespace roundelay::gradients {

// Memory for results, which only this process uses. It has `type`'s size for each element of the pool.
struct ResultMemory {
  RegionPtr region;
  at::ScalarType type = at::kFloat;
};

// Callers hold the GIL. Each function with errors may also return kAborted (a GPU has failed).
class GradientPool {
 public:
  // The type of a result memory, and its size in bytes.
  using ResultSize = std::pair<at::ScalarType, std::size_t>;

  // Makes a pool of `bytes` without entries, in a region that the ranks of the process set may reach under
  // `key`. Without `results`, a bucket's results are the reduced entries. The pool belongs to one init():
  // after another one its memory may be shared with other ranks than those of the process set. Errors: those
  // of current_context() and Context::make_region().
  static Result<std::shared_ptr<GradientPool>> make(std::uint64_t key, std::size_t bytes,
                                                    ProcessSetId process_set, c10::Device device,
                                                    const std::optional<ResultSize>& results);

  [[nodiscard]] const Region& region() const { return *memory_.region(); }
  [[nodiscard]] c10::Device device() const { return memory_.device(); }
  // Adds an entry for the gradient of `parameter` at a byte offset; `type` is the type that is reduced, equal
  // for all entries; it may differ from the parameter's. Returns the entry's index. Errors: kInvalidArgument
  // (the entry is not within the region or the result memory).
  Result<std::size_t> add(std::size_t offset, const at::Tensor& parameter, at::ScalarType type);
  // Removes all entries. Tensors of them that somebody holds keep their values: these move out of the region,
  // which is zero then.
  void clear();
  // Returns the part of the pool that the entry takes.
  [[nodiscard]] PoolRange range(std::size_t index) const { return memory_.range(index); }
  // Returns true if the parameter has the shape and the device that it had in add().
  [[nodiscard]] bool suits(std::size_t index, const at::Tensor& parameter) const {
    return memory_.suits(index, parameter);
  }

  // Fills the entry with `gradient` (copied or cast), or with zeros if it is undefined, and returns the
  // entry. Copies nothing if `gradient` is the entry. Earlier tensors of the entry that somebody holds keep
  // their values.
  Result<at::Tensor> fill(std::size_t index, const at::Tensor& gradient);
  // Does the same without making a tensor of the entry.
  [[nodiscard]] Status write(std::size_t index, const at::Tensor& gradient);
  // Returns the tensor that will be the result of a gradient: of the result memory, if there is one (its
  // elements are undefined until then), otherwise of the entry. It is `before` if that is such a tensor.
  // Others that somebody holds keep their values.
  Result<at::Tensor> result(std::size_t index, const at::Tensor& before);
  // Copies what the entry contains to its result, in the current stream. An operation that was refused has
  // left the entry as it was: the result then is the contribution, rounded once. Does nothing without a
  // result memory.
  void restore(std::size_t index);

  // Returns the elements of a range as a tensor of one dimension.
  [[nodiscard]] at::Tensor elements(const PoolRange& range) const { return memory_.elements(range); }
  // Makes the C library return free memory to the system: that of gradients which entries have replaced. The
  // library would keep it, because small blocks lie in between. Does nothing on a GPU.
  void trim() const;
  // Call it when results are complete in the current stream. Other streams then wait for this point before
  // they fill an entry. Does nothing on the CPU.
  [[nodiscard]] Status record_event();

  // Submits an allreduce in place, which takes this technique. With `cast_back`, results are cast into the
  // result memory if there is one. Errors, which the peers get, too: kInvalidArgument (the range is not
  // within the pool, or the pool is another init()'s), those of adapter::submit().
  [[nodiscard]] Result<complete::Handle> allreduce(const PoolRange& range, const std::string& name,
                                                   const adapter::ReductionArguments& reduction,
                                                   bool cast_back, const TechniqueUse& technique) const;
  // Returns the number of members of each level of the process set, innermost first. Errors: those of
  // Context::level_sizes().
  [[nodiscard]] Result<std::vector<int>> level_sizes() const;

  // Counts how often an entry's values had to move out, as somebody held its last tensor.
  [[nodiscard]] std::int64_t moved_out() const;
  // Counts the gradients that were copied or cast into the pool.
  [[nodiscard]] std::int64_t copied() const { return memory_.copied(); }
  // Counts the buckets whose results were cast into the result memory. Call completed() for each bucket that
  // was reduced.
  [[nodiscard]] std::int64_t cast_back() const { return cast_back_; }
  void completed() { cast_back_ += results_ ? 1 : 0; }

  // Counts the buckets that are submitted in a step. take_submissions() returns their number and ends the
  // step.
  int count_submission() { return ++submissions_; }
  int take_submissions() { return std::exchange(submissions_, 0); }

 private:
  struct Recorded {
    adapter::CallerStream stream;
    GpuEventPtr event;
  };
  // Zeroes the regions on a GPU; on the CPU they are zero already.
  GradientPool(RegionPtr region, c10::Device device, const std::optional<ResultMemory>& results);
  [[nodiscard]] Result<adapter::OperandPtr> operand(const PoolRange& range, bool cast_back) const;
  // Makes the current stream wait for the last record_event() in another one.
  [[nodiscard]] Status wait_for_event() const;

  ProcessSetId process_set_ = 0;
  std::weak_ptr<runtime::Context> context_;  // the init()'s
  PoolMemory memory_;
  std::optional<PoolMemory> results_;
  at::ScalarType result_type_;
  std::optional<Recorded> recorded_;
  std::int64_t cast_back_ = 0;
  int submissions_ = 0;  // the number of buckets submitted in this step
};

}  // namespace roundelay::gradients
