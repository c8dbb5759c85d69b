#include "collective/local.h"

#include <cassert>
#include <utility>

#include "collective/check.h"
#include "kernels/kernels.h"

namespace roundelay::collective {
namespace {

class Done final : public Pending {
 public:
  Result<bool> test() override { return true; }
};

}  // namespace

LocalFabric::LocalFabric(Group group) : group_(std::move(group)) { assert(group_.size() == 1); }

Result<std::unique_ptr<Pending>> LocalFabric::start(const Call& call) {
  ROUNDELAY_RETURN_IF_ERROR(check_call(call, 1));
  if (call.operation == Operation::kAllreduce && !call.scale.identity()) {
    kernels::scale_copy(call.buffer.data(), call.buffer.data(), call.buffer.bytes / size_of(call.dtype),
                        call.dtype, call.scale);
  }
  return std::unique_ptr<Pending>(std::make_unique<Done>());
}

}  // namespace roundelay::collective
