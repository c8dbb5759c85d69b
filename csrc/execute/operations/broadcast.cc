#include <algorithm>

#include "execute/operations/operations.h"

namespace roundelay::execute {
namespace {

std::string check_broadcast(const submit::Entry& entry, const Group& group) {
  const int root = entry.request.root;
  if (std::find(group.ranks.begin(), group.ranks.end(), root) != group.ranks.end()) return {};
  return "root_rank " + std::to_string(root) + " is not a rank of this process set, which has " +
         std::to_string(group.size()) + " ranks";
}

Status prepare_broadcast(DeviceBuffers& buffers, const Batch& batch, collective::BroadcastCall& call) {
  const Group& group = buffers.fabric().group();
  const submit::Part& part = batch.tensors.front().memory();
  const auto root = std::find(group.ranks.begin(), group.ranks.end(), batch.request().root);
  call.root = static_cast<int>(root - group.ranks.begin());
  if (call.root == group.index && part.input != part.output) {
    ROUNDELAY_RETURN_IF_ERROR(buffers.copy(part.output, part.input, part.bytes()));
  }
  call.stream = buffers.stream();
  call.buffer = {part.output, part.bytes()};
  return {};
}

collective::Task run_broadcast(DeviceBuffers& buffers, Batch& batch) {
  collective::Call call;
  Status ready = prepare_broadcast(buffers, batch, new_call<collective::BroadcastCall>(call, batch));
  if (!ready.ok()) co_return ready;
  co_await collective::Calling(buffers.fabric(), call);
  co_return Status();
}

}  // namespace

const OperationSteps kBroadcastSteps = {check_broadcast, run_broadcast};

}  // namespace roundelay::execute
