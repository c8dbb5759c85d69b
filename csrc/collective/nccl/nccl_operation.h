// One call that NCCL carries out in its stream: kernels, NCCL's work, kernels.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "base/gpu_runtime.h"
#include "base/group.h"
#include "collective/call.h"
#include "collective/nccl/device_scratch.h"
#include "collective/nccl/reduction.h"
#include "kernels/gpu.h"
#include "platform/nccl/api.h"

namespace roundelay::collective::nccl {

// What the calls of one member work with. Outlives them.
struct Tools {
  const Group& group;
  platform::NcclCommunicator& communicator;
  GpuRuntime& runtime;
  kernels::GpuKernels& kernels;
  int device;
  DeviceScratch& scratch;
};

// Whether NCCL can carry out the call; all members say the same.
[[nodiscard]] bool fits(const Call& call, int members);

// A call without data starts nothing, on no member.
class NcclOperation {
 public:
  // `call` outlives it, and fits().
  NcclOperation(const Tools& tools, const Call& call);

  // Enqueues the kernels before NCCL's work, and starts that work.
  [[nodiscard]] Status begin();
  // Enqueues the kernels after NCCL's work. Call it when all that begin() started is enqueued.
  [[nodiscard]] Status end();

 private:
  Status start(const AllreduceCall& call);
  Status start(const BroadcastCall& call);
  Status start(const BarrierCall& call);
  Status start(const AllgatherCall& call);
  Status start(const AlltoallCall& call);
  Status start(const ReducescatterCall& call);
  Status gather_unevenly(const AllgatherCall& call);
  Status send_and_receive(const AlltoallCall& call);

  Status grouped(const std::function<Status()>& calls);
  Status copy(std::byte* to, const std::byte* from, std::size_t bytes);
  // Casts elements of `dtype` to the type that NCCL reduces, scaled by how_.before.
  Status widen(std::byte* to, const std::byte* from, std::size_t elements, DType dtype);
  // Keeps for end() that the result is to be made of what NCCL has reduced at `reduced`.
  void finish_later(const std::byte* reduced, ByteSpan result, DType dtype);
  Result<std::byte*> take_scratch(std::size_t bytes);

  [[nodiscard]] bool widens(DType dtype) const { return size_of(how_.wire) != size_of(dtype); }
  [[nodiscard]] std::size_t self() const { return static_cast<std::size_t>(tools_.group.index); }

  const Tools& tools_;
  const Call& call_;
  const GpuStream stream_;
  ReductionPlan how_;                          // of reductions
  std::optional<kernels::GpuCopy> last_copy_;  // what end() has to enqueue
  bool scratch_taken_ = false;
};

}  // namespace roundelay::collective::nccl
