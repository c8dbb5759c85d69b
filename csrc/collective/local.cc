#include "collective/local.h"

#include <cassert>
#include <utility>

#include "collective/alone.h"
#include "collective/check.h"
#include "collective/present.h"

namespace roundelay::collective {

LocalFabric::LocalFabric(Group group) : group_(std::move(group)) { assert(group_.size() == 1); }

Result<std::unique_ptr<Pending>> LocalFabric::start(const Call& call) {
  ROUNDELAY_RETURN_IF_ERROR(check_call(call, group_, takes_scattered()));
  if (!is_absent(call, group_.index)) finish_alone(call);
  return finished_call();
}

}  // namespace roundelay::collective
