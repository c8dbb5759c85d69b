// Describes what one rank has to do after an order. Participant::apply() returns it, and lanes carry it out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/agreement.h"
#include "base/status.h"
#include "wire/submission.h"

namespace roundelay::negotiate {

// A submission that failed: it gets no operation.
struct FailedSubmission {
  std::string name;
  Status status;
  std::vector<std::uint64_t> counters{};  // a join's wire::Failure::counters
};

// Lets this rank enqueue an operation on its GPU after the operation that has the ticket `previous`.
struct GpuTicket {
  std::uint64_t number = 0;
  std::uint64_t previous = 0;  // 0: at once
  friend bool operator==(const GpuTicket&, const GpuTicket&) = default;
};

// A fused operation or an agreement as this rank carries it out, or skips it. An order brings it, or under a
// schedule lock the sequence itself.
struct OrderedOperation {
  std::vector<std::string> names;     // its tensors, in buffer order; empty if skipped
  std::vector<std::int64_t> extents;  // those of wire::FusedOperation
  std::vector<int> absent;            // group members (indices, ascending) that have joined and skip it
  bool skipped = false;               // this rank is absent
  std::optional<GpuTicket> ticket{};  // set if other process sets use the GPU too
  // Set in an agreement: its result, but for `absent`. No fabric has a part in it. If skipped it is empty.
  std::optional<Agreed> agreed{};
  friend bool operator==(const OrderedOperation&, const OrderedOperation&) = default;
};

// A schedule lock that begins (lock/schedule_lock.h).
struct Schedule {
  std::uint64_t number = 0;  // the lock's number
  // One period: the tensors of each operation, in buffer order. An agreement has its base as values.
  std::vector<std::vector<wire::Submission>> operations;
  // This rank's submissions that are neither ordered nor failed; those of one name in their order, a join
  // last. Each belongs to the schedule, or waits for its end.
  std::vector<wire::Submission> returned;
};

// All that one order means for this rank. The fields are in the order in which they have to be done.
struct Applied {
  std::optional<std::uint64_t> unlock{};  // the lock ends at this position
  bool freeze = false;                    // the submit::TensorTable has to freeze
  std::vector<OrderedOperation> operations;
  std::vector<FailedSubmission> failed;
  std::optional<wire::Joined> joined;  // the join in flight is over
  std::optional<Schedule> schedule{};  // a lock begins
  int shutdown_by = -1;                // world rank; not -1: no order follows
  bool removed = false;                // the process set was removed: no order follows
};

}  // namespace roundelay::negotiate
