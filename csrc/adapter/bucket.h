// A range of a gradient pool, whose gradients are reduced together where they lie.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

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
//
// A gradient becomes its pool's entry if it has the type that travels. Otherwise it stays where it is until
// the bucket is submitted, and is cast again only if its version has changed since it arrived. (Writes that
// autograd does not count, through `.data` or NumPy in a later hook, are therefore lost.)
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

  // Call it when autograd has added the last contribution of a step to a gradient; `parameter` is the
  // gradient's. Copies the contribution into the pool, a sparse one as dense, and submits the bucket if this
  // was the last gradient. Returns false, without any effect, if the pool contains this step's result
  // already. Errors: kInvalidArgument (the parameter has changed since the pool was made), those of
  // GradientPool::fill and submit(). Throws as Submit.
  [[nodiscard]] Result<bool> arrived(Gradient& gradient, const at::Tensor& parameter);
  // Submits the whole bucket. Gradients without a contribution give zeros. Errors: as arrived(), and
  // Gradient::expect(). Throws as Submit; nothing is in flight then.
  [[nodiscard]] Status submit();

  // Returns the operation in flight: the caller waits for it, then calls complete() or, if it failed or its
  // results are not needed, abandon().
  [[nodiscard]] std::optional<submit::Handle> in_flight() const { return in_flight_; }
  // Gives each gradient its result.
  void complete();
  // Ignores the results of the operation in flight, which is over. If it has failed, each `.grad` gets its
  // contribution back, as the pool has it: validation errors leave the pool as it was.
  void abandon(bool failed);

  // Chooses the technique that reduces the bucket from the next submit() on: TechniqueChoice::choose(). Call
  // it when all gradients were added. Errors: kUnavailable too if the bucket is in flight; those of Levels
  // and of Accelerator::stream_for. Throws as Levels.
  [[nodiscard]] Status set_technique(std::string_view text);
  // Returns TechniqueChoice::state(), for use in the current stream: the next submit() waits for that stream.
  // Undefined: there is none. Errors: those of Accelerator::stream_for.
  [[nodiscard]] Result<at::Tensor> technique_state();
  // Restores TechniqueChoice::run(). Errors: kUnavailable (the bucket is in flight).
  [[nodiscard]] Status set_run(std::uint64_t run);
  // Multiplies what the technique keeps, in the current stream. Errors: kUnavailable (the bucket is in
  // flight), those of Accelerator::stream_for. May throw.
  [[nodiscard]] Status rescale(double factor);
  [[nodiscard]] TechniqueChoice& technique() { return technique_; }
  [[nodiscard]] const TechniqueChoice& technique() const { return technique_; }

  // Returns the position of the bucket among those of the pool that were submitted in this step, from 1 on;
  // 0: it was not.
  [[nodiscard]] int turn() const { return turn_; }
  // Does the same as GradientGroup::new_step(), and resets turn().
  void new_step();

 private:
  // Knows a contribution again while its elements are the same.
  class Taken {
   public:
    Taken() = default;
    explicit Taken(const at::Tensor& contribution);
    [[nodiscard]] bool is(const at::Tensor& contribution) const;

   private:
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor_{c10::intrusive_ptr<c10::TensorImpl>()};  // null: none
    std::int64_t version_ = 0;
  };
  struct Slot {
    std::size_t entry;
    Taken taken{};        // the entry's content, if `.grad` is not the entry
    at::Tensor result{};  // the tensor that becomes `.grad`; undefined if none is in flight
    at::Tensor source{};  // the tensor that the operation fills, if the result is other memory
  };

  [[nodiscard]] Status refuse_in_flight() const;
  [[nodiscard]] Status take_in(const Gradient& gradient, const at::Tensor& parameter);
  [[nodiscard]] Status prepare(Gradient& gradient);
  [[nodiscard]] Status prepare_result(Slot& slot, const at::Tensor& parameter);
  [[nodiscard]] Status prepare_all();
  void restore_contributions();
  void drop_results();

  GradientPool& pool_;
  const Submit submit_;
  const Levels levels_;
  std::vector<Slot> slots_;  // one for each gradient
  PoolRange range_;
  TechniqueChoice technique_;
  std::optional<submit::Handle> in_flight_;
  int turn_ = 0;
};

}  // namespace roundelay::adapter
