// A range of a gradient pool, whose gradients are reduced together where they lie.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/accelerator.h"
#include "adapter/gradient_group.h"
#include "adapter/gradient_pool.h"
#include "adapter/technique_choice.h"
#include "base/status.h"
#include "submit/handles.h"

namespace roundelay::adapter {

// A bucket is reduced in its pool once in a step: arrived() copies gradients in, the last one submits the
// bucket, complete() gives each gradient its result. Later reductions of the step are Python's, as the pool
// contains the first result. Callers hold the GIL.
class Bucket final : public GradientGroup {
 public:
  // Submits an allreduce of the range under this name. May throw.
  using Submit = std::function<submit::Handle(const std::string& name, const PoolRange& range,
                                              const TechniqueUse& technique)>;
  // Returns the number of members of each level of the process set, innermost first. May throw.
  using Levels = std::function<Result<std::vector<int>>()>;

  // `pool` and `accelerator` outlive the bucket.
  Bucket(std::string name, GradientPool& pool, Submit submit, Levels levels, Accelerator& accelerator);

  // Adds the gradient of a pool's entry. The entries of a bucket are neighbours, added in order.
  void add(std::shared_ptr<Gradient> gradient, std::size_t entry);

  // Call it when a gradient has arrived; `parameter` is the gradient's, and a sparse contribution is to be
  // made dense. Copies the contribution into the pool, and submits the bucket if this was the last one.
  // Returns false, without any effect, if the pool contains this step's result already. Errors:
  // kInvalidArgument (the parameter has changed since the pool was made), those of GradientPool::fill and
  // submit(). Throws as Submit.
  [[nodiscard]] Result<bool> arrived(Gradient& gradient, const at::Tensor& parameter);
  // Submits the whole bucket. Gradients without a contribution give zeros. Errors: as arrived(), and
  // Gradient::make_room(). Throws as Submit; nothing is in flight then.
  [[nodiscard]] Status submit();

  // The operation in flight: the caller waits for it, then calls complete() or, if it failed, abandon().
  [[nodiscard]] std::optional<submit::Handle> in_flight() const { return in_flight_; }
  // Gives each gradient its result.
  void complete();
  // Drops the results.
  void abandon();

  // Chooses the technique that reduces the bucket from the next submit() on: TechniqueChoice::choose(). Call
  // it when all gradients were added. Errors: kUnavailable too if the bucket is in flight; those of Levels
  // and of Accelerator::stream_for. Throws as Levels.
  [[nodiscard]] Status set_technique(std::string_view text);
  // The state is zeroed, read and written in the current stream: the next submit() waits for it.
  [[nodiscard]] Result<at::Tensor> technique_state();
  // Restores TechniqueChoice::run(). Errors: kUnavailable (the bucket is in flight).
  [[nodiscard]] Status set_run(std::uint64_t run);
  // Multiplies what the technique keeps, in the current stream. Errors: kUnavailable (the bucket is in
  // flight), those of Accelerator::stream_for. May throw.
  [[nodiscard]] Status rescale(double factor);
  [[nodiscard]] TechniqueChoice& technique() { return technique_; }
  [[nodiscard]] const TechniqueChoice& technique() const { return technique_; }

  // The position of the bucket among those of the pool that were submitted in this step, from 1 on; 0: it
  // was not.
  [[nodiscard]] int turn() const { return turn_; }
  void new_step();

 private:
  struct Slot {
    std::size_t entry;
    at::Tensor result{};  // the tensor that becomes `.grad`; undefined if none is in flight
    at::Tensor source{};  // the entry, if the result is other memory
  };

  [[nodiscard]] Status refuse_in_flight() const;
  [[nodiscard]] Result<at::Tensor> copy_in(const Gradient& gradient, const at::Tensor& parameter);
  [[nodiscard]] Status send(Gradient& gradient);
  [[nodiscard]] Status send_all();
  void drop_results();

  GradientPool& pool_;
  const Submit submit_;
  const Levels levels_;
  std::vector<Slot> slots_;  // of each gradient
  PoolRange range_;
  TechniqueChoice technique_;
  std::optional<submit::Handle> in_flight_;
  int turn_ = 0;
};

}  // namespace roundelay::adapter
