// NCCL as Roundelay uses it: a thin interface, so that what is above it runs without a GPU. platform/nccl's
// library.h is the real one, reached by dlopen; tests have a fake that fails, hangs and errs on order.
//
// Thread-safe but for calls on one communicator, which are for one thread at a time (abort: any thread).
// Errors: kUnavailable (no library, too old), kAborted (with NCCL's words).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/dtype.h"
#include "base/gpu.h"
#include "base/status.h"

namespace roundelay::platform {

using NcclId = std::array<std::byte, 128>;

// All members make the same calls in the same order. A call is started when it returns, and enqueued when
// ready() says so; nothing that depends on it may be enqueued to its stream before. Between begin_group()
// and end_group() nothing is started; end_group() starts all of it at once.
class NcclCommunicator {
 public:
  virtual ~NcclCommunicator() = default;  // after finish or abort: of a communicator in use it aborts
  // Whether all that was started (the making of the communicator too) is enqueued. Errors that came
  // meanwhile, on the wire or in a peer, too: to be asked now and then as long as work is in the stream.
  [[nodiscard]] virtual Result<bool> ready() = 0;
  // Ends what is enqueued, so that the stream goes on; memory that it was to write to has no meaning then.
  virtual void abort() = 0;

  [[nodiscard]] virtual Status begin_group() = 0;
  [[nodiscard]] virtual Status end_group() = 0;
  struct Reduction {
    ReduceOp op = ReduceOp::kSum;
    bool average = false;  // the sum divided by the members; floating types
  };
  [[nodiscard]] virtual Status all_reduce(const void* from, void* to, std::size_t count, DType dtype,
                                          Reduction reduction, GpuStream stream) = 0;
  [[nodiscard]] virtual Status reduce_scatter(const void* from, void* to, std::size_t count_each, DType dtype,
                                              Reduction reduction, GpuStream stream) = 0;
  [[nodiscard]] virtual Status all_gather(const void* from, void* to, std::size_t bytes_each,
                                          GpuStream stream) = 0;
  [[nodiscard]] virtual Status broadcast(void* data, std::size_t bytes, int root, GpuStream stream) = 0;
  [[nodiscard]] virtual Status send(const void* from, std::size_t bytes, int to, GpuStream stream) = 0;
  [[nodiscard]] virtual Status receive(void* to, std::size_t bytes, int from, GpuStream stream) = 0;
};

class NcclApi {
 public:
  virtual ~NcclApi() = default;
  // 22809 for 2.28.9
  [[nodiscard]] virtual int version() const = 0;
  [[nodiscard]] virtual Result<NcclId> make_id() = 0;
  // Collective; returns at once, and the communicator is usable when ready().
  [[nodiscard]] virtual Result<std::unique_ptr<NcclCommunicator>> join(const NcclId& id, int members,
                                                                       int index, int device) = 0;
};

// What NCCL can reduce: no int16, no bool.
[[nodiscard]] bool nccl_reduces(DType dtype);

}  // namespace roundelay::platform
