// The part of NCCL's C interface that Roundelay uses, declared here so that the build does not need NCCL.
// tests/nccl_abi compares it with nccl.h.
#pragma once

#include <cstddef>

#include "base/gpu.h"

namespace roundelay::platform::nccl {

using Comm = struct CommState*;

struct UniqueId {
  char internal[128];
};

enum Code : int {
  kSuccess = 0,
  kInProgress = 7,  // a non-blocking communicator is still at work
};

enum DataType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 4,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};

enum RedOp : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };

// Computes NCCL_VERSION_CODE as NCCL does since 2.9.
constexpr int version_code(int major, int minor, int patch) { return major * 10000 + minor * 100 + patch; }

// The first version with non-blocking communicators.
inline constexpr int kOldestVersion = version_code(2, 14, 0);

// ncclConfig_t of that version. Later versions append fields; they use defaults for fields that `version`
// does not have.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned int magic = 0xcafebeef;
  unsigned int version = kOldestVersion;
  int blocking = 0;
};

// X(member, NCCL's name without "nccl")
#define ROUNDELAY_NCCL_FUNCTIONS(X)            \
  X(get_version, GetVersion)                   \
  X(get_unique_id, GetUniqueId)                \
  X(comm_init_rank_config, CommInitRankConfig) \
  X(comm_finalize, CommFinalize)               \
  X(comm_destroy, CommDestroy)                 \
  X(comm_abort, CommAbort)                     \
  X(comm_get_async_error, CommGetAsyncError)   \
  X(get_error_string, GetErrorString)          \
  X(get_last_error, GetLastError)              \
  X(group_start, GroupStart)                   \
  X(group_end, GroupEnd)                       \
  X(all_reduce, AllReduce)                     \
  X(reduce_scatter, ReduceScatter)             \
  X(all_gather, AllGather)                     \
  X(broadcast, Broadcast)                      \
  X(send, Send)                                \
  X(recv, Recv)

struct Functions {
  Code (*get_version)(int* version) = nullptr;
  Code (*get_unique_id)(UniqueId* id) = nullptr;
  Code (*comm_init_rank_config)(Comm* comm, int members, UniqueId id, int index, Config* config) = nullptr;
  Code (*comm_finalize)(Comm comm) = nullptr;
  Code (*comm_destroy)(Comm comm) = nullptr;
  Code (*comm_abort)(Comm comm) = nullptr;
  Code (*comm_get_async_error)(Comm comm, Code* state) = nullptr;
  const char* (*get_error_string)(Code result) = nullptr;
  const char* (*get_last_error)(Comm comm) = nullptr;
  Code (*group_start)() = nullptr;
  Code (*group_end)() = nullptr;
  Code (*all_reduce)(const void* from, void* to, std::size_t count, DataType type, RedOp op, Comm comm,
                     GpuStream stream) = nullptr;
  Code (*reduce_scatter)(const void* from, void* to, std::size_t count_each, DataType type, RedOp op,
                         Comm comm, GpuStream stream) = nullptr;
  Code (*all_gather)(const void* from, void* to, std::size_t count_each, DataType type, Comm comm,
                     GpuStream stream) = nullptr;
  Code (*broadcast)(const void* from, void* to, std::size_t count, DataType type, int root, Comm comm,
                    GpuStream stream) = nullptr;
  Code (*send)(const void* from, std::size_t count, DataType type, int peer, Comm comm,
               GpuStream stream) = nullptr;
  Code (*recv)(void* to, std::size_t count, DataType type, int peer, Comm comm, GpuStream stream) = nullptr;
};

}  // namespace roundelay::platform::nccl
