// Says which operations a locked schedule may have. Pure. The coordinator and the participants apply the same
// rule.
#pragma once

#include <set>
#include <vector>

#include "lock/announcements.h"
#include "wire/messages.h"

namespace roundelay::lock {

// Returns whether members have cells for the agreements of this period, which has the ids of each operation.
// An agreement has an operation of its own. `request_of(id)`: the id's request.
template <typename RequestOf>
[[nodiscard]] bool lockable(const std::vector<std::vector<wire::CacheId>>& period, RequestOf request_of) {
  std::set<wire::CacheId> agreements;
  for (const auto& ids : period) {
    for (const wire::CacheId id : ids) {
      const wire::Request& request = request_of(id);
      if (request.operation != Operation::kAgreement) continue;
      if (ids.size() > 1) return false;
      agreements.insert(id);
    }
  }
  return agreements.size() <= kLockedAgreements;
}

}  // namespace roundelay::lock
