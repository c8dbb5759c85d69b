// What torch.distributed's calls return: a collective under way.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collective/call.h"
#include "compress/technique.h"
#include "process_group/callbacks.h"
#include "process_group/device_copies.h"
#include "process_group/group_session.h"
#include "process_group/tensors.h"
#include "submit/entry.h"

namespace roundelay::process_group {

// A call that is ready to be carried out.
struct Prepared {
  // The call takes an input from this memory, or writes a result there.
  void take(const Memory& input);
  void give(const Memory& output);

  ::c10d::OpType type = ::c10d::OpType::UNKNOWN;
  const char* title = "";  // for torch's profiler: "roundelay:all_reduce"
  collective::Call call;
  DType dtype = DType::kUInt8;
  std::vector<at::Tensor> inputs;   // for torch's profiler
  std::vector<at::Tensor> results;  // of the work, and of its future
  std::vector<at::Tensor> kept;     // the memory that the call uses, besides
  std::function<void()> begin;      // brings the inputs from a device; empty: they are there
  std::function<void()> finish;     // brings the results to the caller's tensors; empty: they are there
  std::chrono::milliseconds timeout{};
  bool blocking = false;  // the caller waits next
  // Carries the allreduce out; null: the call itself does.
  std::shared_ptr<const compress::BucketTechnique> technique{};
  bool local = false;  // WholeCall's
};

class CallWork final : public ::c10d::Work, public submit::Results {
 public:
  // Starts the call. Throws c10::DistBackendError if the group has failed.
  static c10::intrusive_ptr<CallWork> start(const std::shared_ptr<GroupSession>& group, Prepared prepared);
  CallWork(std::shared_ptr<GroupSession> group, Prepared prepared);
  ~CallWork() override;

  // Blocks until the call is over; the thread carries it out meanwhile, as far as it may. Throws the call's
  // error; c10::DistBackendError at the timeout, after which the call goes on.
  bool wait(std::chrono::milliseconds timeout) override;
  std::vector<at::Tensor> result() override { return prepared_.results; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_.get(); }
  void abort() override;

  Result<submit::Results::Memory> allocate(std::size_t part, const std::vector<std::int64_t>& shape) override;
  void set_received_splits(std::vector<std::int64_t> rows) override;
  void set_over(const Status& outcome) override;

 private:
  // Brings the tensors' values from a device, or the results to the tensors.
  Status copy(const std::function<void()>& copies);
  void forget();

  const std::shared_ptr<GroupSession> group_;
  Prepared prepared_;
  DeviceCopies copies_;
  CallFuture future_;
  std::atomic<complete::Handle> handle_{0};
};

// Waits until `done` says that it is over, in steps between which Python's signal handlers run. `step` blocks
// until its deadline, or until something has changed. Returns false at the deadline.
bool wait_in_steps(const std::function<bool()>& done, const std::function<void(Deadline)>& step,
                   Deadline deadline);
// Returns the deadline of a caller's wait.
[[nodiscard]] Deadline deadline_of(std::chrono::milliseconds timeout);

}  // namespace roundelay::process_group
