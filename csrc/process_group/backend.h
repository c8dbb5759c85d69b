// The backend "roundelay" of torch.distributed: one object a process group.
#pragma once

#include <sys/types.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "process_group/calls.h"
#include "process_group/group_session.h"
#include "process_group/message_lane.h"

namespace roundelay::process_group {

using std::chrono::milliseconds;

// torch's Backend.hpp describes the functions. Any thread may call them. Collectives are carried out in the
// order in which they are called, messages beside them. Throws ValueError for arguments that make no sense,
// c10::DistBackendError after a fault, and in a forked child.
class RoundelayBackend final : public ::c10d::Backend {
 public:
  static c10::intrusive_ptr<RoundelayBackend> create(std::shared_ptr<GroupSession> group,
                                                     milliseconds timeout);
  RoundelayBackend(std::shared_ptr<GroupSession> group, milliseconds timeout);
  ~RoundelayBackend() override;

  // The last reference has gone, but for weak ones, which keep the object's memory alone.
  void release_resources() override;
  [[nodiscard]] const std::string getBackendName() const override { return "roundelay"; }
  // Returns a copy: ProcessGroup::splitGroup() writes the new group's name and timeout into it.
  c10::intrusive_ptr<Options> getBackendOptions() override { return c10::make_intrusive<Options>(*options_); }
  void setTimeout(milliseconds timeout) override { options_->timeout = timeout; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return calls_; }
  ::c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override { stop(); }
  // Null: this rank is not among `ranks`. supportsSplitting() stays false: for true, new_group() calls
  // functions of NCCL's class in Python. The ProcessGroup splits without asking.
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<::c10d::Store>& store,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& options) override;

  // Allocates in the group's heap, where peers on the node reach the bytes: they are not staged. DDP's
  // buckets come from here, with DDP_DISABLE_COMM_MEM=0. Ordinary memory, if there is none in the heap. Real
  // and imaginary parts of complex numbers, as twice as many real ones.
  bool supportsTensorAlloc(c10::DeviceIndex device) override;
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;

  using WorkPtr = c10::intrusive_ptr<::c10d::Work>;
  WorkPtr broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const ::c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const ::c10d::ReduceOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const ::c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const ::c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const ::c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const ::c10d::AllgatherOptions& options) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const ::c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const ::c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const ::c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const ::c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const ::c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const ::c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const ::c10d::AllToAllOptions& options) override;
  WorkPtr barrier(const ::c10d::BarrierOptions& options) override;
  void monitoredBarrier(const ::c10d::BarrierOptions& options, bool wait_all_ranks) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  // Averages a bucket by a technique, as another collective; null: densely. calls.h describes `digest`.
  WorkPtr average(const at::Tensor& bucket, std::shared_ptr<const compress::BucketTechnique> technique,
                  std::int32_t digest);
  // Adds to the bucket what a technique keeps back, by its flush. It calls no peer. Blocks.
  void give_back(const at::Tensor& bucket, std::shared_ptr<const compress::BucketTechnique> flush);
  // Returns the sizes of the group's levels, as in compress::Technique::state_bytes().
  [[nodiscard]] std::vector<int> level_sizes() const;

  [[nodiscard]] bool stopped() const { return stopped_; }
  // Leaves the group. Later calls do nothing; calls of other functions throw. Call it without the GIL.
  void stop();
  // Tells the peers that this rank has done `what`, which ends communication for all members.
  void fail(const std::string& what);

 private:
  [[nodiscard]] Place place() const { return {rank_, size_}; }
  [[nodiscard]] milliseconds time_for(milliseconds asked) const;
  WorkPtr start(Prepared prepared, milliseconds timeout, bool async);
  // Blocks until members know how many values each has.
  WorkPtr sum_sparse(const at::Tensor& tensor, const ::c10d::AllreduceOptions& options);
  WorkPtr message(MessageLane::Message::Kind kind, Tensors& tensors, int peer, int tag);
  [[nodiscard]] MessageLane& messages() const;
  void check_usable() const;

  const pid_t process_;                  // in which the group's threads live
  std::shared_ptr<GroupSession> group_;  // null: the backend has ended
  const c10::intrusive_ptr<Options> options_;
  std::shared_ptr<MessageLane> messages_;  // null: there is one member
  std::atomic<uint64_t> calls_{0};
  std::atomic<bool> stopped_{false};
};

// Leaves all groups that this process has not left. Call it without the GIL.
void stop_all();
// Calls fail() of all of them.
void fail_all(const std::string& what);

}  // namespace roundelay::process_group
