// Element types, reduction operations and collective operations: the vocabulary of every layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace roundelay {

// Values travel on the wire: append only.
enum class DType : std::uint8_t {
  kFloat64,
  kFloat32,
  kFloat16,
  kBFloat16,
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUInt8,
  kBool,
};
inline constexpr int kDTypeCount = 10;

// Order and values are Horovod's (hvd.Average == 0 ...).
enum class ReduceOp : std::uint8_t { kAverage, kSum, kAdasum, kMin, kMax, kProduct };
inline constexpr int kReduceOpCount = 6;

enum class Operation : std::uint8_t {
  kAllreduce,
  kBroadcast,
  kBarrier,
  kAllgather,
  kAlltoall,
  kReducescatter,
  kJoin,        // no data: this rank has nothing more to give until all ranks have joined
  kProcessSet,  // no data: all ranks agree to add a process set, or to remove one
};
inline constexpr int kOperationCount = 8;

// Where a tensor is. Operations on both kinds may be mixed; one operation's tensors are alike on all ranks.
enum class DeviceType : std::uint8_t { kCpu, kGpu };
inline constexpr int kDeviceTypeCount = 2;

std::size_t size_of(DType dtype);           // bytes per element
std::string_view name_of(DType dtype);      // torch's names: "float32", "bfloat16" ...
std::string_view name_of(ReduceOp op);      // "Average", "Sum" ...
std::string_view name_of(Operation op);     // "allreduce" ...
std::string_view name_of(DeviceType type);  // "the CPU", "a GPU"
bool is_floating(DType dtype);

// y = round(x * factor) or round(x / divisor), as one of them is 1: what a user multiplies with, or an
// average (a rounded reciprocal would not give equal inputs back). Integers truncate toward zero.
struct Scale {
  double factor = 1.0;
  std::int64_t divisor = 1;
  [[nodiscard]] bool identity() const { return factor == 1.0 && divisor == 1; }
  friend bool operator==(const Scale&, const Scale&) = default;
};

}  // namespace roundelay
