// How a lane carries out each operation. A new operation is one new file here and one line in operations.cc.
#pragma once

#include "base/group.h"
#include "base/status.h"
#include "fuse/fusion_buffer.h"
#include "runtime/batch.h"

namespace roundelay::runtime {

struct OperationSteps {
  // What is wrong with a request by itself; empty if nothing. Called on the framework's thread.
  std::string (*check)(const wire::Request& request, const Group& group);
  // Brings the input to where the collective works (the output, or the fusion buffer) and fills batch.call.
  // Errors: kUnavailable (no memory).
  Status (*prepare)(Batch& batch, const Group& group, fuse::FusionBuffer& fusion);
  // Brings the result to the outputs.
  void (*finish)(Batch& batch);
};

const OperationSteps& steps_of(Operation operation);

extern const OperationSteps kAllreduceSteps;
extern const OperationSteps kBroadcastSteps;
extern const OperationSteps kBarrierSteps;

}  // namespace roundelay::runtime
