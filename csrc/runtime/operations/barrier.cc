#include "runtime/operations/operations.h"

namespace roundelay::runtime {
namespace {

std::string check(const wire::Request&, const Group&) { return {}; }

Status prepare(Batch& batch, const Group&, fuse::FusionBuffer&) {
  batch.call.operation = Operation::kBarrier;
  return {};
}

void finish(Batch&) {}

}  // namespace

const OperationSteps kBarrierSteps = {check, prepare, finish};

}  // namespace roundelay::runtime
