// Gradients that one operation reduces. The group knows which of them are ready, and submits itself when it
// is full.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "gradients/flight.h"
#include "gradients/gradient.h"
#include "gradients/producers.h"
#include "gradients/rule.h"

namespace roundelay::gradients {

// Starts the reduction of sparse gradients, which Python carries out.
class SparseReducer {
 public:
  virtual ~SparseReducer() = default;
  // Submits a reduction of the tensor out of place. May throw.
  virtual std::unique_ptr<Flight> reduce_sparse(const at::Tensor& tensor, const std::string& name) = 0;
};

// Each gradient without a bucket and outside of groups= is a group of its own. If backward brings only a part
// of a group, the group waits for the agreement of the step (reducer.h): then all ranks know which of its
// gradients any rank has, and reduce those. Sparse gradients wait too, as another rank may have a dense one,
// or none.
//
// A gradient belongs to the group that it was added to last. Callers hold the GIL. Functions that submit,
// wait or finish may throw what Python throws (a compressor, a signal handler).
class GradientGroup {
 public:
  // Says whether a gradient is ready, and how. kDense + n: it is sparse, with n sparse dimensions.
  using Kind = std::uint8_t;
  static constexpr Kind kNotReady = 0;
  static constexpr Kind kDense = 1;

  // `name` is the operation's.
  GradientGroup(std::string name, std::shared_ptr<const Rule> rule);
  virtual ~GradientGroup();
  GradientGroup(const GradientGroup&) = delete;
  GradientGroup& operator=(const GradientGroup&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  // Adds a gradient; its index is the number of those before it.
  void add(std::shared_ptr<Gradient> gradient) { add_to(std::move(gradient), nullptr); }
  [[nodiscard]] const std::vector<std::shared_ptr<Gradient>>& gradients() const { return gradients_; }

  // Marks a gradient as ready: autograd has added the last contribution of a step to it; `parameter` is the
  // gradient's. The last one submits the group. Errors: kInvalidArgument (it is sparse, and cannot be reduced
  // so: the peers get the error, too), those of submit_all().
  [[nodiscard]] virtual Status arrived(Gradient& gradient, const at::Tensor& parameter);
  // Calls arrived() for gradients that should be ready and are not: they are wanted, and `.grad` has a
  // contribution of at least `passes` backward passes, or, if `by_hand`, one that no backward has made.
  // Errors: as arrived().
  [[nodiscard]] Status submit_overdue(int passes, bool by_hand);
  // Submits the whole group, with zeros where this rank has no gradient. Errors: those of adapter::submit().
  [[nodiscard]] virtual Status submit_all();
  // Submits the gradients that are ready on some rank, with their kinds, by index. All ranks submit the same.
  // Errors: as submit_all().
  [[nodiscard]] Status submit_ready(std::string_view kinds, SparseReducer& sparse);
  // Sleeps until all that was submitted is complete, and gives each gradient its result. Errors: those of the
  // operations.
  [[nodiscard]] virtual Status finish();
  // Waits for operations in flight after a failure, and ignores their results: all gradients begin anew.
  virtual void abandon();

  // Calls Gradient::put_back() of all gradients.
  void put_back();
  // Lets all gradients begin anew. Call it after the optimizer's step, or zero_grad().
  virtual void new_step();

  // Returns one Kind for each gradient, by index. The ranks compare them.
  [[nodiscard]] const std::vector<Kind>& kinds() const { return kinds_; }
  [[nodiscard]] bool any_ready() const { return ready_ > 0; }
  // Returns how often the group was full since the last take_filled() or new_step().
  [[nodiscard]] int filled() const { return filled_; }
  int take_filled() { return std::exchange(filled_, 0); }
  // Makes the next operation the step's second one: the gradients were reduced in it before they came here.
  void join_step() { operations_ = 1; }
  // Says that some rank has submitted the whole group since the last step.
  void note_seen() { seen_ = true; }
  [[nodiscard]] bool seen() const { return seen_; }

  // Returns the names of the operations submitted since the last finish().
  [[nodiscard]] const std::vector<std::string>& names_in_flight() const { return names_in_flight_; }

 protected:
  [[nodiscard]] const Rule& rule() const { return *rule_; }
  // Adds a gradient, to a bucket if `bucket` is this group.
  void add_to(std::shared_ptr<Gradient> gradient, Bucket* bucket);
  // Returns the number of dimensions in which `.grad` is sparse; 0: it is or will be made dense. Errors: as
  // arrived().
  [[nodiscard]] Result<Kind> sparse_dimensions(const Gradient& gradient, const at::Tensor& parameter) const;
  // Marks a gradient as ready. Returns true if the group is full: every gradient that its optimizer wants is
  // ready and dense. No group is full before there is a unit of weights (BatchWeights). Errors: as
  // Accelerator::stream_for; kInternal (it is another group's).
  [[nodiscard]] Result<bool> mark_ready(const Gradient& gradient, const at::Tensor& parameter, Kind kind);
  void unmark_all();
  // Counts the next operation of the step and returns its name: `name`, from the second one on with a number.
  [[nodiscard]] const std::string& next_name(const std::string& name);
  // Gives a gradient the result of an operation, which it weighs as the rule says.
  void complete(std::size_t index, const at::Tensor& result);
  // Returns the number of operations since the last step.
  [[nodiscard]] int operations() const { return operations_; }
  // Makes the current stream wait for the streams that produced the ready gradients. Call it before the
  // group is submitted. Errors: those of base/gpu_runtime.h.
  [[nodiscard]] Status wait_for_producers() { return producers_.gather(); }
  // Makes wait_for_producers() wait for what the current stream does to this tensor. Errors: as
  // Accelerator::stream_for.
  [[nodiscard]] Status note_producer(const at::Tensor& tensor);

 private:
  using Chosen = std::vector<std::size_t>;  // indices of gradients
  struct OnDevice {
    c10::Device device;
    Chosen chosen;
    std::vector<std::unique_ptr<DenseFlight>> flights;  // one for each
  };
  [[nodiscard]] Status submit_dense(const Chosen& chosen, const std::string& name);
  [[nodiscard]] Status submit_on_one_device(OnDevice& part, const std::string& name);
  [[nodiscard]] Status submit_sparse(std::size_t index, Kind kind, SparseReducer& sparse);
  void submitted(std::size_t index, std::unique_ptr<Flight> flight);
  void unmark(std::size_t index);

  struct InFlight {
    std::size_t index;  // the gradient's
    std::unique_ptr<Flight> flight;
  };

  const std::string name_;
  const std::string ready_name_;  // of the operation on gradients that are ready while others are not
  const std::shared_ptr<const Rule> rule_;
  std::vector<std::shared_ptr<Gradient>> gradients_;
  std::vector<Kind> kinds_;  // one for each gradient
  std::deque<InFlight> flights_;
  std::size_t ready_ = 0;
  std::size_t wanted_ = 0;  // the number of wanted gradients when the first one became ready
  std::vector<std::string> names_in_flight_;
  int operations_ = 0;
  int filled_ = 0;
  bool seen_ = false;
  Producers producers_;
};

}  // namespace roundelay::gradients
