#include "collective/whole_call.h"

#include "execute/operations/operations.h"

namespace roundelay::execute {
namespace {

collective::Task run_whole_call(DeviceBuffers& buffers, Batch& batch) {
  collective::WholeCall& whole = *batch.whole_call();
  Status ready = whole.begin ? whole.begin() : Status();
  if (!ready.ok()) co_return ready;
  if (!whole.local) co_await collective::Calling(buffers.fabric(), whole.call);
  co_return Status();
}

}  // namespace

const OperationSteps kWholeCallSteps = {nullptr, run_whole_call};

}  // namespace roundelay::execute
