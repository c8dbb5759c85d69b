#include <algorithm>
#include <cstring>

#include "runtime/operations/operations.h"

namespace roundelay::runtime {
namespace {

std::string check(const wire::Request& request, const Group& group) {
  if (std::find(group.ranks.begin(), group.ranks.end(), request.root) != group.ranks.end()) return {};
  return "root_rank " + std::to_string(request.root) + " is not a rank of this process set, which has " +
         std::to_string(group.size()) + " ranks";
}

Status prepare(Batch& batch, const Group& group, fuse::FusionBuffer&) {
  const submit::Entry& entry = *batch.entries.front();
  const auto root = std::find(group.ranks.begin(), group.ranks.end(), entry.request.root);
  batch.call.operation = Operation::kBroadcast;
  batch.call.dtype = entry.request.dtype;
  batch.call.root = static_cast<int>(root - group.ranks.begin());
  if (batch.call.root == group.index && entry.input != entry.output && entry.count > 0) {
    std::memcpy(entry.output, entry.input, entry.bytes());
  }
  batch.call.buffer = {entry.output, 0, entry.bytes(), collective::kAdHoc};
  return {};
}

void finish(Batch&) {}

}  // namespace

const OperationSteps kBroadcastSteps = {check, prepare, finish};

}  // namespace roundelay::runtime
