// A member's part in agreements: writes its values into reports, and takes results from orders. Pure.
#pragma once

#include <map>
#include <optional>

#include "base/agreement.h"
#include "base/status.h"
#include "negotiate/cached_requests.h"
#include "wire/submission.h"

namespace roundelay::negotiate {

// Writes submissions into a report.
class ReportedSubmissions {
 public:
  // Both outlive this object.
  ReportedSubmissions(const CachedRequests& cache, wire::Report& report) : cache_(cache), report_(report) {}

  // Writes a submission: by its id if the coordinator knows exactly this request, else in full. Returns the
  // id, or kNoCacheId. Adds what an agreement's values change.
  wire::CacheId add(const wire::Submission& submission);
  // Call it after the last add().
  void finish();

 private:
  void contribute(std::size_t request, ByteChange change);

  const CachedRequests& cache_;
  wire::Report& report_;
  std::map<wire::CacheId, ByteChange> changes_;  // in agreements that are reported by id
};

// If the operation is an agreement: stores its result, but for `absent`, and makes it the base of its id.
// `request` is this member's. kInternal: the coordinator broke the protocol.
Status take_result(const wire::FusedOperation& operation, const wire::Request& request, CachedRequests& cache,
                   std::optional<Agreed>& agreed);
// Does the same on a member that has joined. It takes no part, but its next submission has the base that the
// others have. The result is empty if this member does not know the fields.
Status take_skipped_result(const wire::FusedOperation& operation, CachedRequests& cache,
                           std::optional<Agreed>& agreed);

}  // namespace roundelay::negotiate
