#include "collective/whole_call.h"

#include "execute/operations/operations.h"

namespace roundelay::execute {
namespace {

collective::Task run_whole_call(DeviceBuffers& buffers, Batch& batch) {
  co_await collective::Calling(buffers.fabric(), batch.whole_call()->call);
  co_return Status();
}

}  // namespace

const OperationSteps kWholeCallSteps = {nullptr, run_whole_call};

}  // namespace roundelay::execute
