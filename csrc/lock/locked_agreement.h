// One agreement of a locked schedule, on one member of the group. Pure.
//
// Under a schedule lock no order carries the result of an agreement. Instead each member shows all others
// what its values change in the last result, in a cell beside its announcement word (lock/announcements.h).
// Each member merges the cells of all members when it enters the agreement's position. So all get the same
// result, and the same base for the next submission.
//
// An agreement has two cells, which its submissions use in turn. Two are enough. A name in flight cannot be
// submitted again: so a member files submission n + 2 only after it has entered submission n + 1. All members
// had then announced submission n + 1, and each had filed it only after it had entered submission n and read
// its cells there. So no member has still to read the cell of submission n that submission n + 2 replaces.
// With one cell, a member that has entered submission n could replace what a slower one has still to read.
//
// A lock uses the same cells as the one before it. It begins only when its operations have repeated after the
// end of that lock. So each member had by then reported that it has applied that end, which enters the last
// positions of the old lock and reads their cells. A cell has the number of its lock and of its submission,
// so that a broken rule is an error and never a wrong result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/agreement.h"
#include "base/status.h"
#include "lock/announcements.h"
#include "wire/submission.h"

namespace roundelay::lock {

class LockedAgreement {
 public:
  // `number`: its index among the agreements of the period, less than kLockedAgreements. `last`: its request,
  // and its last result as values.
  LockedAgreement(std::uint64_t lock, std::size_t number, wire::Submission last);

  // Files the next submission. False, and nothing has changed: what the values change does not fit into a
  // cell, or the submission before it is not entered yet.
  bool file(std::string_view values);
  // Return the number of the filed submission's cell, its contents and its values.
  [[nodiscard]] std::size_t cell_number() const { return 2 * number_ + entered_ % 2; }
  [[nodiscard]] const Cell& cell() const { return cell_; }
  [[nodiscard]] const std::string& values() const { return values_; }

  // Enters the filed submission. `cells`: those of this number of all members; `ranks`: the members' world
  // ranks, ascending. Returns the result. kInternal: a member shows another submission, or no change of these
  // values.
  Result<Agreed> enter(const std::vector<Cell>& cells, const std::vector<int>& ranks);

  friend bool operator==(const LockedAgreement&, const LockedAgreement&) = default;

 private:
  std::uint64_t lock_;
  std::size_t number_;
  wire::Request request_;
  std::string base_;    // the last result
  std::string values_;  // of the filed submission
  Cell cell_;           // of the filed submission
  std::uint64_t filed_ = 0;
  std::uint64_t entered_ = 0;
};

}  // namespace roundelay::lock
