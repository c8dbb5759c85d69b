// One call's turn in its stream: kernels, what NCCL does, kernels.
#pragma once

#include <cstddef>
#include <functional>

#include "base/gpu_runtime.h"
#include "collective/fabric.h"
#include "collective/nccl/device_scratch.h"
#include "collective/nccl/reduction.h"
#include "kernels/gpu.h"
#include "platform/nccl/api.h"

namespace roundelay::collective::nccl {

// What turns work with. Outlives them.
struct Tools {
  const Group& group;
  platform::NcclCommunicator& communicator;
  GpuRuntime& runtime;
  kernels::GpuKernels& kernels;
  int device;
  DeviceScratch& scratch;
};

// Whether NCCL can carry it out; all members say the same.
[[nodiscard]] bool fits(const Call& call, int members);

// Calls without data start nothing, on no member.
class Turn {
 public:
  // `call` outlives it, and fits().
  Turn(const Tools& tools, const Call& call);

  [[nodiscard]] Status begin();
  // When all that begin() started is enqueued.
  [[nodiscard]] Status end();

 private:
  Status reduce_all();
  Status scatter();
  Status gather();
  Status gather_unevenly();
  Status exchange();
  Status send_and_receive();
  Status barrier();

  Status grouped(const std::function<Status()>& calls);
  Status copy(std::byte* to, const std::byte* from, std::size_t bytes);
  // Elements to what NCCL reduces, scaled by how_.before.
  Status widen(std::byte* to, const std::byte* from, std::size_t elements);
  Result<std::byte*> take_scratch(std::size_t bytes);

  [[nodiscard]] bool widens() const { return size_of(how_.wire) != size_of(call_.dtype); }
  [[nodiscard]] std::size_t self() const { return static_cast<std::size_t>(tools_.group.index); }
  [[nodiscard]] std::byte* result() const { return call_.buffer.data(); }
  [[nodiscard]] std::size_t count() const { return call_.buffer.bytes / size_of(call_.dtype); }

  const Tools& tools_;
  const Call& call_;
  Reduction how_;                       // of reductions
  const std::byte* reduced_ = nullptr;  // what NCCL makes of this member's part of the result; null: nothing
  bool scratch_taken_ = false;
};

}  // namespace roundelay::collective::nccl
