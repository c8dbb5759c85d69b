// A range of a gradient pool, whose gradients are reduced together where they lie.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gradients/flight.h"
#include "gradients/group.h"
#include "gradients/pool.h"
#include "gradients/technique_choice.h"
#include "gradients/weak_tensor.h"

namespace roundelay::gradients {

// A bucket is reduced in its pool once in a step: gradients are copied in as they arrive, the last one
// submits the bucket, and finish() gives each gradient its result. Later contributions of the step (a second
// backward before it) are reduced where autograd has put them, as the pool contains the first result.
//
// A gradient becomes its pool's entry if it has the type that travels. Otherwise it stays where it is until
// the bucket is submitted, and is cast again only if its version has changed since it arrived. (Writes that
// autograd does not count, through `.data` or NumPy in the hook of a later gradient, are therefore lost.)
class Bucket final : public GradientGroup {
 public:
  Bucket(std::string name, std::shared_ptr<GradientPool> pool, std::shared_ptr<const Rule> rule);

  // Adds the gradient of a pool's entry. The entries of a bucket are neighbours, added in order.
  void add(std::shared_ptr<Gradient> gradient, std::size_t entry);
  [[nodiscard]] GradientPool& pool() const { return *pool_; }
  [[nodiscard]] std::size_t bytes() const { return range_.bytes; }
  // Returns the first element of each gradient and their number, counted from the bucket's first one.
  [[nodiscard]] std::vector<compress::Slice> slices() const;

  // Errors, too: kInvalidArgument (the parameter has changed since the pool was made), those of
  // GradientPool::fill.
  [[nodiscard]] Status arrived(Gradient& gradient, const at::Tensor& parameter) override;
  // Errors, too: Gradient::expect().
  [[nodiscard]] Status submit_all() override;
  [[nodiscard]] Status finish() override;
  // If the operation has failed, each `.grad` gets its contribution back, as the pool has it: validation
  // errors leave the pool as it was.
  void abandon() override;

  // Chooses the technique that reduces the bucket from the next submit() on: TechniqueChoice::choose(). Call
  // it when all gradients were added. Errors: kUnavailable too if the bucket is in flight; those of
  // Context::level_sizes() and Accelerator::stream_for().
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

  // Returns the scale of its sum over so many ranks.
  [[nodiscard]] Scale scale_over(int ranks) const;

  // Returns the position of the bucket among those of the pool that were submitted in this step, from 1 on;
  // 0: it was not.
  [[nodiscard]] int number_in_step() const { return number_in_step_; }
  // Resets number_in_step(), too.
  void new_step() override;
  // Returns what the technique has sent in this step's only operation in the pool. Nothing: there was none,
  // or the technique has no chunks.
  [[nodiscard]] std::optional<compress::SentChunks> sent() const;

 private:
  struct Slot {
    std::size_t entry;
    std::optional<TensorVersion> taken{};  // the entry's content, if `.grad` is not the entry
    at::Tensor result{};                   // the tensor that becomes `.grad`; undefined if none is in flight
    at::Tensor source{};  // the tensor that the operation fills, if the result is other memory, or nobody's
  };

  [[nodiscard]] Status refuse_in_flight() const;
  [[nodiscard]] Status take_in(const Gradient& gradient, const at::Tensor& parameter);
  [[nodiscard]] Status prepare(Gradient& gradient);
  [[nodiscard]] Status prepare_result(Slot& slot, const at::Tensor& parameter);
  [[nodiscard]] Status prepare_all();
  [[nodiscard]] Status submit_in_pool();
  void complete_all();
  void pass_on_overflows();
  void restore_contributions();
  void drop_results();

  const std::shared_ptr<GradientPool> pool_;
  std::vector<Slot> slots_;  // one for each gradient
  PoolRange range_;
  TechniqueChoice technique_;
  std::optional<SharedOperation> in_flight_;
  int number_in_step_ = 0;
};

}  // namespace roundelay::gradients
