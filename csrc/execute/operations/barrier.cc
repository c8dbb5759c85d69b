#include "execute/operations/operations.h"

namespace roundelay::execute {
namespace {

std::string check_barrier(const submit::Entry&, const Group&) { return {}; }

collective::Task run_barrier(DeviceBuffers& buffers, Batch& batch) {
  collective::Call call;
  new_call<collective::BarrierCall>(call, batch);
  co_await collective::Calling(buffers.host_fabric(), call);
  co_return Status();
}

}  // namespace

const OperationSteps kBarrierSteps = {check_barrier, run_barrier};

}  // namespace roundelay::execute
