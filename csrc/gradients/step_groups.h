// The groups of one optimizer's gradients, and their state since its last step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "gradients/agreement_round.h"
#include "gradients/group.h"

namespace roundelay::gradients {

// Callers hold the GIL. Functions that submit or wait may throw what Python throws.
class StepGroups {
 public:
  using Groups = std::vector<std::shared_ptr<GradientGroup>>;

  // Sets the groups. All values below have their order. Gradients that were seen in earlier groups stay seen.
  void set(Groups groups);

  // Calls GradientGroup::submit_overdue() of all groups, with its errors.
  [[nodiscard]] Status submit_overdue(int passes, bool by_hand);
  // Calls Gradient::put_back() of all gradients.
  void put_back();
  // Returns whether the ranks have something to agree on.
  [[nodiscard]] bool has_submitted() const;
  // Returns whether gradients are in flight or wait for others.
  [[nodiscard]] bool outstanding() const;
  // Returns whether every gradient that some rank wants was submitted, by the last note().
  [[nodiscard]] bool complete() const { return complete_; }

  // Writes this rank's part of an agreement round, and counts submissions from 0 again.
  void write(RoundValues& values);
  // Notes which gradients are missing, by the round's result.
  void note(const RoundValues& merged);
  // Contributes to operations that others have submitted and this rank has not. `submitted`: this rank's
  // RoundValues::submitted. Returns whether there were any. Errors: those of submitting.
  [[nodiscard]] Result<bool> contribute(const RoundValues& merged, const std::string& submitted,
                                        SparseReducer& sparse);
  // Sleeps until all that was submitted is complete. Errors: those of the operations.
  [[nodiscard]] Status finish();
  // Waits for operations in flight and ignores their results: all gradients begin anew.
  void abandon();
  void new_step();

  // Returns the names of the operations in flight.
  [[nodiscard]] std::vector<std::string> names_in_flight() const;
  // Returns the error, and in it the names of gradients that are in flight.
  [[nodiscard]] Status naming_gradients(const Status& error) const;

 private:
  Groups groups_;
  bool complete_ = false;
};

}  // namespace roundelay::gradients
