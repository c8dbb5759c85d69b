// An allreduce whose bucket takes a technique.
#include <memory>
#include <utility>

#include "execute/lane_recorder.h"
#include "execute/operations/operations.h"
#include "execute/technique_stage.h"

namespace roundelay::execute {
namespace {

using collective::Task;

// Holds a stage, and gives it back. If the task's frame is leaked, the stage is too: the medium may write to
// its memory.
class StageUse {
 public:
  explicit StageUse(DeviceBuffers& buffers) : buffers_(buffers), stage_(buffers.take_stage()) {}
  ~StageUse() { buffers_.return_stage(std::move(stage_)); }
  StageUse(const StageUse&) = delete;
  StageUse& operator=(const StageUse&) = delete;
  [[nodiscard]] TechniqueStage& stage() const { return *stage_; }

 private:
  DeviceBuffers& buffers_;
  std::unique_ptr<TechniqueStage> stage_;
};

compress::Bucket bucket_of(const Batch& batch, int members) {
  const submit::Part& part = batch.pieces.front().tensor();
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

}  // namespace

collective::Task run_technique(DeviceBuffers& buffers, Batch& batch) {
  const compress::BucketTechnique& taken = *batch.entries.front()->technique;
  const StageUse use(buffers);
  const compress::Bucket bucket = bucket_of(batch, buffers.fabric().group().size());
  Task inner;
  if (taken.flush) {
    Status given = taken.technique->give_back(use.stage(), bucket);
    if (!given.ok()) co_return given;
    inner = batch.steps->run(buffers, batch);
  } else {
    inner = taken.technique->run(use.stage(), bucket);
  }
  use.stage().record_to(batch.recorder);
  for (inner.resume(); !inner.done(); inner.resume()) {
    const Task::Step step = inner.step();
    use.stage().end_span();
    co_await collective::Calling(*step.fabric, *step.call);
    if (batch.recorder != nullptr && !step.name.empty()) batch.recorder->record_call(batch, step.name);
  }
  use.stage().end_span();
  if (inner.status().ok() && taken.outcome != nullptr) *taken.outcome = {true, batch.called_bytes};
  co_return inner.status();
}

}  // namespace roundelay::execute
