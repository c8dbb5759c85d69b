// The values of an agreement, as the members have reported them to the coordinator. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/agreement.h"
#include "negotiate/reporters.h"
#include "wire/messages.h"

namespace roundelay::negotiate {

// The values that one member has reported.
struct ReportedValues {
  std::int32_t rank = -1;  // world rank; -1: it has reported nothing
  bool in_full = false;    // with the request in full: `change` is against zeros, not against the base
  ByteChange change{};
};

// Return what a report changes in the values of its request number `request` (wire::Contribution): null if
// nothing; and the changes of members who differ.
[[nodiscard]] const ByteChange* change_in(const wire::Report& report, std::size_t request);
[[nodiscard]] std::span<const wire::MemberChange> others_in(std::span<const wire::MemberChange> others,
                                                            std::size_t request);

// Returns the values that one of these members has reported, whose world rank is `rank`.
[[nodiscard]] ReportedValues values_of(const Reporters& who, int member, std::size_t request,
                                       std::int32_t rank);
// Returns whether all changes to these values lie within `bytes` bytes.
[[nodiscard]] bool values_fit(const Reporters& who, std::size_t request, std::size_t bytes);

// Merges the values of the members, which come by ascending rank, for an agreement of this request. `base`:
// the result of the last agreement under its id; zeros if it has none. All changes fit.
[[nodiscard]] Agreed merge(const wire::Request& request, const std::vector<ReportedValues>& members,
                           const std::string& base);

}  // namespace roundelay::negotiate
