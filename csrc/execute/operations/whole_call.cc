#include "collective/whole_call.h"

#include "execute/operations/operations.h"

namespace roundelay::execute {
namespace {

collective::Task run_whole_call(DeviceBuffers& buffers, Batch& batch) {
  collective::WholeCall& whole = *batch.whole_call();
  if (!whole.local) co_await collective::Calling(buffers.fabric(), whole.call);
  co_return Status();
}

}  // namespace

const OperationSteps kWholeCallSteps = {nullptr, run_whole_call};

}  // namespace roundelay::execute
