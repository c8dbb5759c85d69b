#include "collective/single/single_fabric.h"

#include <cassert>
#include <utility>

#include "collective/check.h"
#include "collective/present.h"
#include "collective/single.h"

namespace roundelay::collective {

SingleFabric::SingleFabric(Group group)
    : Fabric({.scattered = true, .within_node = true}), group_(std::move(group)) {
  assert(group_.size() == 1);
}

Result<std::unique_ptr<PendingCall>> SingleFabric::start(const Call& call) {
  ROUNDELAY_RETURN_IF_ERROR(check_call(call, group_, capabilities()));
  if (!is_absent(options_of(call), group_.index)) finish_single(call);
  return finished_call();
}

}  // namespace roundelay::collective
