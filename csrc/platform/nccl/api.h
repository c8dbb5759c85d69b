// The interface through which Roundelay uses NCCL. platform/nccl/library.h implements it with the real
// library, opened by dlopen; tests implement it with a fake that fails, hangs and detects a wrong order of
// calls.
//
// Thread-safe, except that one thread at a time may call one communicator; abort() may come from any thread.
// Errors: kUnavailable (no library, too old), kAborted with NCCL's text.
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

// All members make the same calls in the same order. A call only starts its operation; ready() tells when
// all operations are enqueued to their streams. The caller enqueues dependent work only after that.
// Operations between begin_group() and end_group() start together in end_group().
class NcclCommunicator {
 public:
  virtual ~NcclCommunicator() = default;  // aborts a communicator that is still in use
  // Returns whether all operations that were started, and the creation of the communicator, are enqueued.
  // Also reports errors of the network and of peers: callers ask repeatedly while work is in the stream.
  [[nodiscard]] virtual Result<bool> ready() = 0;
  // Ends the operations in the stream, which then continues. The contents of their results are undefined. All
  // later calls but end_group() return an error.
  virtual void abort() = 0;

  [[nodiscard]] virtual Status begin_group() = 0;
  [[nodiscard]] virtual Status end_group() = 0;
  struct Reduction {
    ReduceOp op = ReduceOp::kSum;
    bool average = false;  // divides the sum by the number of members; floating types only
  };
  // `count` counts elements; `count_each` and `bytes_each` are for one member's share. `root` and the peers
  // `to` and `from` are indices in the group.
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
  // Returns the version code: 22809 for 2.28.9.
  [[nodiscard]] virtual int version() const = 0;
  // Makes the id with which the members of a new communicator find each other.
  [[nodiscard]] virtual Result<NcclId> make_id() = 0;
  // Starts to make a communicator. All members call it with the same id. Returns at once; the communicator is
  // ready when ready() is true.
  [[nodiscard]] virtual Result<std::unique_ptr<NcclCommunicator>> join(const NcclId& id, int members,
                                                                       int index, int device) = 0;
};

// Returns whether NCCL can reduce this type. It cannot reduce int16 and bool.
[[nodiscard]] bool nccl_reduces(DType dtype);

}  // namespace roundelay::platform
