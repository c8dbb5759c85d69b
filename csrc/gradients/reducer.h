// Keeps the gradients of one optimizer equal on all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/agreement.h"
#include "base/clock.h"
#include "base/status.h"
#include "complete/handles.h"
#include "gradients/agreement_round.h"
#include "gradients/backward_end.h"
#include "gradients/gradient.h"
#include "gradients/rule.h"
#include "gradients/step_groups.h"

namespace roundelay::gradients {

// Python's decisions. Callers hold the GIL. The functions may throw.
class Policy : public SparseReducer {
 public:
  // Takes the merged values of Python's fields; `absent`: world ranks that have joined; `busy`: some rank
  // waits for other rounds, too. `differences`: of Python's fields; their indices count from its first one.
  struct Agreement {
    std::string values;
    std::vector<Difference> differences;
    std::vector<std::int32_t> absent;
    bool busy = false;
  };
  virtual void agreed(const Agreement& agreement) = 0;
  // Raises what differs between the ranks' optimizers, which all call it. `error`: the agreement's; ok: their
  // digests differ.
  virtual void differs(const Status& error) = 0;
  // Begins a step anew after a failure, when nothing is in flight any more.
  virtual void failed() = 0;
};

// Hooks submit gradients while backward runs, each alone or with its group. At the end of the outermost
// backward, and in step() if some gradients are missing, the ranks hold a *round*: an agreement that tells
// all of them how often the rank that did so most has submitted each group, and which gradients wait for the
// rest of their group. It is submitted with the last gradients. A rank without a gradient that others have
// contributes `.grad` as it is, or zeros. A gradient that no rank has stays as it is; one that was set by
// hand since the last step is reduced in step(). When backward() returns, all submitted operations are
// therefore complete on every rank.
//
// step() holds further rounds only while there is a gradient that no rank has submitted since the last step
// (an unused layer, a second loss still to come), until all ranks are in step(). Ranks may therefore call
// backward() a different number of times as long as each such call brings gradients that the step did not
// have yet. A rank that has joined takes part in nothing, and nobody waits for it.
//
// Callers hold the GIL. Functions that submit or wait may throw what Python throws.
class Reducer final : public Listener, public std::enable_shared_from_this<Reducer> {
 public:
  // A gradient and the time at which autograd had added its last contribution of the step.
  using ReadyTime = std::pair<std::shared_ptr<Gradient>, TimePoint>;

  // `prefix`: that of the optimizer's names. `root`: the world rank that leads the process set.
  Reducer(Order order, std::string prefix, std::shared_ptr<const Rule> rule, int root,
          std::unique_ptr<Policy> policy);
  ~Reducer() override;

  // What Python decides, equal on all ranks unless it says otherwise:
  // The groups of all gradients, in this order from now on.
  void set_groups(StepGroups::Groups groups) { groups_.set(std::move(groups)); }
  // The rule of later operations. It belongs to one init().
  void set_rule(std::shared_ptr<const Rule> rule) { rule_ = std::move(rule); }
  // A digest of what the ranks compare in each round: kComparedBytes bytes, each rank's own.
  void set_compared(std::string digest) { compared_ = std::move(digest); }
  // Python's fields, and this rank's values of them. Policy::agreed() is called after a round if some merged
  // value of a field is not zero, but for those that have to be equal, if a rank has joined, and if `always`.
  void set_policy(std::vector<AgreementField> fields, std::string values, bool always);
  // A tensor on the CPU that the next round brings to its greatest value of all ranks, before
  // Policy::agreed().
  void attach(at::Tensor tensor) { attached_ = std::move(tensor); }
  [[nodiscard]] HookRules& rules() { return rules_; }
  // Records when gradients are ready from now on, or no longer.
  void set_recording(bool on) { recording_ = on; }
  [[nodiscard]] bool recording() const { return recording_; }
  // Returns those of this step, in their order.
  [[nodiscard]] const std::vector<ReadyTime>& ready_times() const { return ready_times_; }

  // Continues a hook: autograd has added the last contribution of a step to a gradient. Errors: those of
  // GradientGroup::arrived(); kInvalidArgument if compiled autograd runs, which the peers get, too.
  [[nodiscard]] Status arrived(const std::shared_ptr<Gradient>& gradient, const at::Tensor& parameter);
  // Completes everything for this step: gradients not submitted yet, and those of other ranks. Errors: those
  // of the operations.
  [[nodiscard]] Status synchronize();
  // Begins a step, after optimizer.step() and zero_grad().
  void new_step();
  // Waits for operations in flight and ignores their results. Policy::failed() begins the step anew.
  void abandon();

  [[nodiscard]] const StepGroups& groups() const { return groups_; }
  // Returns the names of the operations in flight.
  [[nodiscard]] std::vector<std::string> names_in_flight() const;
  // The number of rounds since the last step.
  [[nodiscard]] int rounds() const { return rounds_; }

  // Listener:
  [[nodiscard]] Order order() const override { return order_; }
  bool backward_ended() override;
  [[nodiscard]] Status begin_round(bool final, bool alone) override;
  [[nodiscard]] Status end_round() override;

 private:
  // A round that has begun, and this rank's part in it.
  struct Round {
    std::optional<complete::Handle> handle;  // nothing: end_round() submits the agreement and waits
    RoundShape shape;
    std::string values;
    std::string submitted;  // RoundValues::submitted
  };

  [[nodiscard]] Status join_backward();
  [[nodiscard]] bool open() const;
  [[nodiscard]] std::string round_name() const { return prefix_ + ".agreement" + std::to_string(rounds_); }
  [[nodiscard]] std::string attached_name() const { return prefix_ + ".attached"; }
  [[nodiscard]] Result<complete::Handle> submit(const Round& round, bool blocking);
  [[nodiscard]] Status submit_attached();
  [[nodiscard]] Result<Agreed> wait_for(const Round& round);
  [[nodiscard]] Status contribute(const RoundValues& merged, const std::string& submitted);
  [[nodiscard]] Status finish();
  void check_weights(double sum);
  void tell_policy(const RoundValues& merged, Agreed agreed);

  const Order order_;
  const std::string prefix_;
  const int root_;
  const std::unique_ptr<Policy> policy_;
  std::shared_ptr<const Rule> rule_;
  HookRules rules_;
  StepGroups groups_;
  std::string compared_ = std::string(kComparedBytes, '\0');
  std::vector<AgreementField> policy_fields_;
  std::string policy_values_;
  bool policy_always_ = false;
  at::Tensor attached_;                       // undefined: none
  std::optional<SharedOperation> in_flight_;  // its operation
  bool recording_ = false;
  std::vector<ReadyTime> ready_times_;
  int graph_task_ = -1;  // the backward whose end this waits for; -1: none
  int rounds_ = 0;
  std::optional<Round> round_;
  bool all_final_ = false;
};

}  // namespace roundelay::gradients
