// Carries out batches: makes the task of a batch, starts and tests the calls that the task asks for, and
// resumes the task when a call is over.
//
// It knows no queue and no order: each function works on the batch that it is given, and a batch keeps all of
// its state. So several batches may be under way: as many as the fabric carries calls, and as there are
// fusion buffers (kDepth).
#pragma once

#include <memory>

#include "base/abort.h"
#include "base/frame_pool.h"
#include "base/status.h"
#include "collective/fabric.h"
#include "execute/batch.h"
#include "execute/device_buffers.h"
#include "execute/gpu_buffers.h"
#include "execute/lane_options.h"

namespace roundelay::execute {

enum class Progress : unsigned char {
  kNone,   // the call in progress is not over
  kMoved,  // a call is over, and the batch has begun its next one
  kDone,   // the results are in the outputs; on a GPU: all of the batch's work is enqueued
};

// One thread at a time: the holder of the lane's token. A batch goes through prepare(), start() and advance()
// until kDone. Errors, at any stage: kAborted (the fabric or the device failed, the AbortToken was raised,
// the deadline of the call passed), kUnavailable (no memory), kInvalidArgument (a tensor is on another GPU
// than the lane's). After an error the caller waits until the AbortToken is raised and then calls abandon().
// Batches that have begun end before the executor.
class BatchExecutor {
 public:
  // Takes ownership of the fabric. `abort` (base/abort.h) outlives the executor.
  BatchExecutor(std::unique_ptr<collective::Fabric> fabric, const AbortToken& abort, LaneOptions options);
  ~BatchExecutor() { close(); }
  BatchExecutor(const BatchExecutor&) = delete;
  BatchExecutor& operator=(const BatchExecutor&) = delete;

  // Runs the batch's task up to its first call. The tensors are then where the fabric can work on them.
  // `timed`: on a GPU, asks the device for its times.
  [[nodiscard]] Status prepare(Batch& batch, bool timed);
  // Starts the batch's first call, whose deadline is options.call_timeout() and the time for its bytes.
  [[nodiscard]] Status start(Batch& batch);
  // Moves a started batch on. Never blocks. kDone comes once.
  [[nodiscard]] Result<Progress> advance(Batch& batch);
  // Returns true if the batch is on a GPU and never lets the device wait for a peer. Not after close().
  [[nodiscard]] bool device_never_waits(const Batch& batch) const {
    return batch.on_gpu() && gpu_->device_never_waits();
  }
  // Ends the batch's call, if it has one, and its task. Call it when the AbortToken is raised. The caller
  // then fails the entries.
  void abandon(Batch& batch);

  // Frees the fabric when no batch is under way. Leaks buffers that the medium may still write to. The thread
  // that frees fabrics (Engine::run_where_fabrics_live()) calls it; later calls do nothing.
  void close();
  // Returns the fabric. Not after close().
  [[nodiscard]] const collective::Fabric& fabric() const { return *fabric_; }
  [[nodiscard]] collective::Fabric& fabric() { return *fabric_; }
  // Returns the buffers for the GPU, which the executor owns. Null: the lane takes no tensors on a GPU, or
  // close() was called.
  [[nodiscard]] GpuBuffers* gpu() { return gpu_.get(); }

 private:
  [[nodiscard]] DeviceBuffers& buffers_of(const Batch& batch) const;
  // Makes the task that carries out the batch.
  [[nodiscard]] collective::Task task_of(Batch& batch) const;
  [[nodiscard]] Status call(Batch& batch);
  [[nodiscard]] Status mark_end(Batch& batch);

  const AbortToken& abort_;
  const LaneOptions options_;
  FramePool frames_;                            // holds the batches' tasks, and outlives the batches
  std::unique_ptr<collective::Fabric> fabric_;  // null: closed
  const std::unique_ptr<HostBuffers> host_;
  std::unique_ptr<GpuBuffers> gpu_;
};

}  // namespace roundelay::execute
