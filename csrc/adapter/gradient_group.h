// Gradients that one operation reduces. The group knows which of them are ready and when it is full.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "adapter/accelerator.h"
#include "adapter/gradient.h"
#include "adapter/producers.h"
#include "base/status.h"

namespace roundelay::adapter {

// A gradient belongs to the group that it was added to last. Callers hold the GIL.
class GradientGroup {
 public:
  // Says whether a gradient is ready, and how. kDense + n: it is sparse, with n sparse dimensions.
  using Kind = std::uint8_t;
  static constexpr Kind kNotReady = 0;
  static constexpr Kind kDense = 1;

  // `name` is the operation's. `accelerator` outlives the group.
  GradientGroup(std::string name, Accelerator& accelerator);
  ~GradientGroup();
  GradientGroup(const GradientGroup&) = delete;
  GradientGroup& operator=(const GradientGroup&) = delete;

  // Adds a gradient; its index is the number of those before it.
  void add(std::shared_ptr<Gradient> gradient);

  // Marks a gradient of the group as ready. Returns true if the group is full: every gradient that its
  // optimizer wants is ready and dense. The caller then submits the group. Errors: as
  // Accelerator::stream_for; kInternal (the gradient belongs to another group).
  [[nodiscard]] Result<bool> mark_ready(Gradient& gradient, Kind kind);
  // Marks one gradient or all as not ready.
  void unmark(const Gradient& gradient);
  void unmark_all();
  [[nodiscard]] bool any_ready() const { return ready_ > 0; }
  // Returns one Kind for each gradient, by index.
  [[nodiscard]] const std::vector<Kind>& kinds() const { return kinds_; }
  // Returns 1 for each gradient that is wanted (Gradient::wanted()), 0 for each other one, by index.
  [[nodiscard]] std::vector<std::uint8_t> wanted() const;
  // Returns the indices of gradients that should be ready and are not: they are wanted, and `.grad` has a
  // contribution of at least so many backward passes.
  [[nodiscard]] std::vector<std::size_t> overdue(int passes) const;

  // Calls Gradient::put_back() of all gradients.
  void put_back();

  // Makes the current stream wait for the streams that produced the ready gradients. Call it before the
  // group is submitted. Errors: those of base/gpu_runtime.h.
  [[nodiscard]] Status wait_for_producers() { return producers_.gather(); }

  // Counts the next operation of the step and returns its name: `name`, from the second one on with a number.
  [[nodiscard]] std::string next_name(const std::string& name);
  [[nodiscard]] const std::string& name() const { return name_; }
  // Returns the number of operations since the last step.
  [[nodiscard]] int operations() const { return operations_; }
  // Returns how often the group was full since the last take_filled() or new_step().
  [[nodiscard]] int filled() const { return filled_; }
  // Returns filled() and sets it to 0.
  int take_filled();

  // Lets all gradients begin anew. Call it after the optimizer's step, or zero_grad().
  void new_step();

 protected:
  // add() and mark_ready() for a bucket. `bucket` is this group, `parameter` the gradient's.
  void add_to_bucket(std::shared_ptr<Gradient> gradient, Bucket* bucket);
  [[nodiscard]] Result<bool> count_ready(const Gradient& gradient, const at::Tensor& parameter, Kind kind);
  [[nodiscard]] const std::vector<std::shared_ptr<Gradient>>& gradients() const { return gradients_; }
  // Makes wait_for_producers() wait for what the current stream does to this tensor. Errors: as
  // Accelerator::stream_for.
  [[nodiscard]] Status note_producer(const at::Tensor& tensor) {
    return producers_.note(tensor, accelerator_);
  }

 private:
  const std::string name_;
  Accelerator& accelerator_;
  std::vector<std::shared_ptr<Gradient>> gradients_;
  std::vector<Kind> kinds_;  // one for each gradient
  std::size_t ready_ = 0;
  std::size_t wanted_ = 0;  // the number of wanted gradients when the first one became ready
  int operations_ = 0;
  int filled_ = 0;
  Producers producers_;
};

}  // namespace roundelay::adapter
