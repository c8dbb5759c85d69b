// One call that NCCL carries out in its stream: kernels first, then NCCL's work, then kernels.
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

// The objects that the calls of one member use. They outlive the calls.
struct Tools {
  const Group& group;
  platform::NcclCommunicator& communicator;
  GpuRuntime& runtime;
  kernels::GpuKernels& kernels;
  int device;
  DeviceScratch& scratch;
};

// Returns whether NCCL can carry out the call. The same on all members.
[[nodiscard]] bool fits(const Call& call, int members);

// One thread at a time. A call without data starts nothing, on any member. Errors: kUnavailable (no memory),
// kAborted (NCCL or the device failed).
class NcclOperation {
 public:
  // `tools` and `call` outlive it. fits() is true for the call.
  NcclOperation(const Tools& tools, const Call& call);

  // Enqueues the kernels before NCCL's work, and starts that work.
  [[nodiscard]] Status begin();
  // Enqueues the kernels after NCCL's work. Call it when all that begin() started is enqueued.
  [[nodiscard]] Status end();

 private:
  // Starts a call of this kind; specialised for each.
  template <class Kind>
  Status start(const Kind& call);
  Status gather_unevenly(const AllgatherCall& call);
  Status send_and_receive(const AlltoallCall& call);

  // Runs NCCL calls that belong together between the begin and the end of a group.
  Status grouped(const std::function<Status()>& calls);
  Status copy(std::byte* to, const std::byte* from, std::size_t bytes);
  // Enqueues a kernel that casts elements of `dtype` to the type that NCCL reduces, and scales them by
  // how_.before.
  Status widen(std::byte* to, const std::byte* from, std::size_t elements, DType dtype);
  // Makes end() cast and scale the sums at `reduced` to the result, where that changes anything.
  void finish_later(const std::byte* reduced, ByteSpan result, DType dtype);
  Result<std::byte*> take_scratch(std::size_t bytes);

  [[nodiscard]] bool widens(DType dtype) const { return size_of(how_.nccl_type) != size_of(dtype); }
  [[nodiscard]] std::size_t self() const { return static_cast<std::size_t>(tools_.group.index); }

  const Tools& tools_;
  const Call& call_;
  const GpuStream stream_;
  ReductionPlan how_;                          // NCCL's way to carry out this call, if it is a reduction
  std::optional<kernels::GpuCopy> last_copy_;  // the copy that end() enqueues
  bool scratch_taken_ = false;
};

}  // namespace roundelay::collective::nccl
