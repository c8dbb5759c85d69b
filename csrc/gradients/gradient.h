// The gradient of one parameter between two optimizer steps, from autograd's hooks to the result in `.grad`.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"
#include "gradients/weak_tensor.h"

namespace roundelay::gradients {

class Bucket;
class GradientGroup;

// The settings that the hooks of one optimizer's gradients share. Python writes them, the hooks read them.
struct HookRules {
  int passes_per_step = 1;  // backward passes before a gradient is reduced
  int no_sync_depth = 0;    // the number of no_sync() blocks that are open
  bool marking = false;     // the timeline records the arrival of every gradient
};

// Says what `.grad` contains.
enum class GradientState : unsigned char {
  kLocal,     // this rank's contribution; `.grad` may be undefined
  kInFlight,  // a tensor that an operation is reducing: nobody may touch it
  kReduced,   // the result of this step's reductions
};

// Owns the state of one parameter's gradient and is its only writer. Does not keep the parameter alive.
// Callers hold the GIL.
//
// Autograd adds to `.grad` in place. Before it does, expect() sets aside a gradient that is in flight or
// reduced: the new contribution is reduced on its own, and its result is added.
class Gradient {
 public:
  // `name` appears in messages. `additive` says whether results of several reductions may be added.
  Gradient(const at::Tensor& parameter, std::string name, bool additive);

  [[nodiscard]] const std::string& name() const { return name_; }
  // Returns the parameter; undefined if it no longer exists. Functions below with an argument `parameter`
  // expect this one, as finding it again costs time.
  [[nodiscard]] at::Tensor parameter() const { return parameter_.lock(); }
  // Returns false if the parameter no longer exists, is frozen, or belongs to another optimizer.
  [[nodiscard]] bool wanted(const at::Tensor& parameter) const {
    return !replaced_ && parameter.defined() && parameter.requires_grad();
  }
  [[nodiscard]] bool wanted() const { return wanted(parameter()); }
  // Marks the parameter as another optimizer's.
  void give_up() { replaced_ = true; }
  // Returns `.grad` in state kLocal, otherwise an undefined tensor.
  [[nodiscard]] at::Tensor local(const at::Tensor& parameter) const {
    return parameter.defined() && state_ == GradientState::kLocal ? parameter.grad() : at::Tensor();
  }

  // Prepares `.grad` for autograd, which has called the parameter's hook with `incoming`, if it adds that to
  // `.grad` next. Call it from that hook. Errors: kUnavailable (not additive).
  [[nodiscard]] Status expect(const at::Tensor& incoming);
  // Returns true if expect() has set aside a result that vacate() can move.
  [[nodiscard]] bool has_set_aside() const { return expected_ && reduced_.defined(); }
  // Moves the result that was set aside into memory of its own, and makes its old memory zero: compiled
  // autograd has read `.grad` before any hook, and will add there.
  void vacate();
  // Counts a backward pass after autograd has added to `.grad`. Returns true if the gradient is to be
  // reduced; false, without any effect, if expect() has found that nothing would be added.
  [[nodiscard]] bool count_pass(const HookRules& rules) {
    if (!std::exchange(expected_, false)) return false;
    ++passes_;
    ++window_;
    if (window_ < rules.passes_per_step || rules.no_sync_depth > 0) return false;
    window_ = 0;
    return true;
  }
  // Puts back what expect() has set aside if nothing was added after all: another hook has raised. Call it
  // when no backward runs.
  void put_back();
  // Returns the number of backward passes in `.grad` that no reduction has taken.
  [[nodiscard]] int passes() const { return passes_; }
  void set_passes(int passes) { passes_ = window_ = passes; }

  // Returns true if `local` is no gradient of a backward, and was not there when the step began.
  [[nodiscard]] bool set_by_hand(const at::Tensor& local) const {
    return passes_ == 0 && !(left_ && left_->is(local));
  }

  // If true, complete() makes a dense result sparse.
  void set_sparse(bool sparse) { sparse_ = sparse; }
  // Takes this rank's contribution out of `.grad` for a reduction. Undefined if there is none. Errors: as
  // expect().
  [[nodiscard]] Result<at::Tensor> take_contribution(const at::Tensor& parameter);
  // Returns true if `tensor` is the one of the last send(), which no other tensor shares memory with.
  [[nodiscard]] bool owns(const at::Tensor& tensor) const { return sent_ && sent_->is(tensor); }
  // Makes `tensor`, which an operation will reduce, `.grad`. The parameter exists.
  void send(const at::Tensor& parameter, const at::Tensor& tensor);
  // Counts an operation that was submitted. complete() follows when it is over, or new_step() after a
  // failure.
  void submitted() { ++reductions_; }
  // Adds the result of an operation to those of earlier ones. The last one puts the sum into `.grad`.
  void complete(const at::Tensor& result);
  // Returns the number of operations without a result.
  [[nodiscard]] int reductions() const { return reductions_; }
  // Forgets contributions and results: `.grad` is local again, as after step() or zero_grad().
  void new_step();

  // Says that some rank has submitted it since the last step.
  void note_seen() { seen_ = true; }
  [[nodiscard]] bool seen() const { return seen_; }

  // The gradient's place among those that are reduced together. Only the group sets it.
  struct Place {
    GradientGroup* group = nullptr;  // null: none
    Bucket* bucket = nullptr;        // the same group; null if the group is not in a pool
    std::size_t index = 0;           // the gradient's number there
  };
  [[nodiscard]] const Place& place() const { return place_; }
  void set_place(Place place) { place_ = place; }

 private:
  [[nodiscard]] Status set_aside(const at::Tensor& parameter);
  void drop_cleared(const at::Tensor& parameter, bool was_expected);
  void publish();

  const WeakTensor parameter_;
  const std::string name_;
  const bool additive_;
  bool replaced_ = false;
  GradientState state_ = GradientState::kLocal;
  bool sparse_ = false;
  bool expected_ = false;  // autograd adds to `.grad` next
  int passes_ = 0;         // in `.grad`
  int window_ = 0;         // since passes_per_step of them were there, or since the step began
  int reductions_ = 0;
  int unwanted_ = 0;  // reductions whose results were cleared before they came
  bool seen_ = false;
  std::optional<WeakTensor> sent_;
  std::optional<WeakTensor> left_;  // `.grad` when the step began
  at::Tensor reduced_;              // the sum of results that `.grad` does not contain
  Place place_;
};

}  // namespace roundelay::gradients
