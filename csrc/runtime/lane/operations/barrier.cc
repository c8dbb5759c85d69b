#include "runtime/lane/operations/operations.h"

namespace roundelay::runtime {
namespace {

std::string check(const submit::Entry&, const Group&) { return {}; }

collective::Task run(DeviceBuffers& buffers, Batch& batch) {
  collective::Call call;
  new_call<collective::BarrierCall>(call, batch);
  co_await collective::Calling(buffers.host_fabric(), call);
  co_return Status();
}

}  // namespace

const OperationSteps kBarrierSteps = {check, run};

}  // namespace roundelay::runtime
