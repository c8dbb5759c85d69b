// An allreduce whose bucket takes a technique.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "compress/give_back.h"
#include "execute/lane_recorder.h"
#include "execute/operations/operations.h"
#include "execute/technique_workspace.h"

namespace roundelay::execute {
namespace {

using collective::Task;

// Holds a workspace, and gives it back. If the task's frame is leaked, the workspace is too: the medium may
// write to its memory.
class WorkspaceUse {
 public:
  explicit WorkspaceUse(DeviceBuffers& buffers) : buffers_(buffers), workspace_(buffers.take_workspace()) {}
  ~WorkspaceUse() { buffers_.return_workspace(std::move(workspace_)); }
  WorkspaceUse(const WorkspaceUse&) = delete;
  WorkspaceUse& operator=(const WorkspaceUse&) = delete;
  [[nodiscard]] TechniqueWorkspace& workspace() const { return *workspace_; }

 private:
  DeviceBuffers& buffers_;
  std::unique_ptr<TechniqueWorkspace> workspace_;
};

compress::Bucket bucket_of(const Batch& batch, int members) {
  const submit::Part& part = batch.tensors.front().memory();
  const compress::BucketTechnique& technique = *batch.entries.front()->technique;
  compress::Bucket bucket;
  bucket.buffer = buffer_of(batch.request(), part);
  bucket.count = part.count;
  bucket.pool_offset = batch.request().region.offset;
  bucket.reduction.dtype = part.dtype;
  set_reduction(bucket.reduction, batch.request(), members);
  bucket.parameters = technique.parameters;
  bucket.state = technique.state;
  bucket.run = technique.run;
  return bucket;
}

// Makes the call that brings each member's flags to the largest of all members'.
collective::Call largest_of(std::vector<std::uint8_t>& flags) {
  collective::AllreduceCall call;
  call.dtype = DType::kUInt8;
  call.reduce_op = ReduceOp::kMax;
  call.buffer = {reinterpret_cast<std::byte*>(flags.data()), 0, flags.size()};
  return call;
}

}  // namespace

collective::Task run_technique(DeviceBuffers& buffers, Batch& batch) {
  const compress::BucketTechnique& taken = *batch.entries.front()->technique;
  const WorkspaceUse use(buffers);
  const compress::Bucket bucket = bucket_of(batch, buffers.fabric().group().size());
  bool applies = true;
  Task inner;
  if (taken.flush) {
    Status given = compress::give_back(*taken.technique, use.workspace(), bucket);
    if (!given.ok()) co_return given;
  } else if (taken.present) {
    collective::Call call = largest_of(*taken.present);
    co_await collective::Calling(buffers.fabric(), call);
    applies = std::ranges::all_of(*taken.present, [](std::uint8_t one) { return one != 0; });
  }
  inner = taken.flush || !applies ? batch.steps->run(buffers, batch)
                                  : taken.technique->run(use.workspace(), bucket);
  use.workspace().record_to(batch.recorder);
  for (inner.resume(); !inner.done(); inner.resume()) {
    const Task::Awaited awaited = inner.awaited();
    use.workspace().end_span();
    co_await collective::Calling(*awaited.fabric, *awaited.call);
    if (batch.recorder != nullptr && !awaited.name.empty()) batch.recorder->record_call(batch, awaited.name);
  }
  use.workspace().end_span();
  if (inner.status().ok() && applies && taken.outcome != nullptr) *taken.outcome = {true, batch.called_bytes};
  co_return inner.status();
}

}  // namespace roundelay::execute
