#include "runtime/lane/operations/operations.h"

namespace roundelay::runtime {
namespace {

std::string check(const submit::Entry&, const Group&) { return {}; }

Status prepare(Batch& batch, DeviceBuffers&) {
  new_call<collective::BarrierCall>(batch);
  return {};
}

}  // namespace

const OperationSteps kBarrierSteps = {check, prepare, nullptr, nullptr};

}  // namespace roundelay::runtime
