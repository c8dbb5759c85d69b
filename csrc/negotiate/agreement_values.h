// The values of an agreement, as the members have reported them to the coordinator. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/agreement.h"
#include "wire/messages.h"

namespace roundelay::negotiate {

// The values that one member has reported.
struct ReportedValues {
  std::int32_t rank = -1;  // world rank; -1: it has reported nothing
  bool in_full = false;    // with the request in full: `change` is against zeros, not against the base
  ByteChange change{};
};

// Returns the values that a report of the world rank `rank` has for its request number `request`
// (wire::Contribution).
[[nodiscard]] ReportedValues values_in(const wire::Report& report, std::size_t request, std::int32_t rank);

// Merges the values of the members, which come by ascending rank, for an agreement of this request. `base`:
// the result of the last agreement under its id; zeros if it has none. All changes fit.
[[nodiscard]] Agreed merge(const wire::Request& request, const std::vector<ReportedValues>& members,
                           const std::string& base);

}  // namespace roundelay::negotiate
