// Lets all ranks agree whether a new process set could be made.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/session/process_sets.h"
#include "runtime/session/user_operations.h"

namespace roundelay::runtime {

// Ends communication for all ranks, with this text as the cause.
using ReportFault = std::function<void(const std::string& why)>;

class SetAgreement {
 public:
  // `rank` and `size`: this rank in the world, and the ranks there. `operations` outlives this object.
  SetAgreement(UserOperations& operations, int rank, int size, Duration start_timeout,
               ReportFault report_fault)
      : operations_(operations),
        rank_(rank),
        size_(size),
        start_timeout_(start_timeout),
        report_fault_(std::move(report_fault)) {}

  // All ranks of the world call it, one call at a time. `mine` is this rank's own outcome. Returns ok if all
  // ranks pass ok, else kUnavailable with the text of the lowest rank that failed, or kAborted after a fault.
  // A rank that does not come within `start_timeout` is a fault.
  Status agree(const ProcessSet& set, const Status& mine);

 private:
  Status exchange(wire::Request request, std::vector<std::int64_t>& words, Deadline deadline);

  UserOperations& operations_;
  const int rank_;
  const int size_;
  const Duration start_timeout_;
  const ReportFault report_fault_;
};

}  // namespace roundelay::runtime
