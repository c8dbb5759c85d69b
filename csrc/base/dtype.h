// Element types, reduction operations and collective operations, which all layers share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace roundelay {

// Messages carry these values: new ones go to the end.
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

// Order and values equal Horovod's (hvd.Average == 0 ...).
enum class ReduceOp : std::uint8_t { kAverage, kSum, kAdasum, kMin, kMax, kProduct };
inline constexpr int kReduceOpCount = 6;

enum class Operation : std::uint8_t {
  kAllreduce,
  kBroadcast,
  kBarrier,
  kAllgather,
  kAlltoall,
  kReducescatter,
  kJoin,        // no data: this rank submits nothing more until all ranks have joined
  kProcessSet,  // no data: all ranks agree to add or to remove a process set
};
inline constexpr int kOperationCount = 8;

// The kind of device that holds a tensor. A job may mix both; one operation uses the same kind on all ranks.
enum class DeviceType : std::uint8_t { kCpu, kGpu };
inline constexpr int kDeviceTypeCount = 2;

std::size_t size_of(DType dtype);           // returns the bytes of one element
std::string_view name_of(DType dtype);      // returns torch's name: "float32", "bfloat16" ...
std::string_view name_of(ReduceOp op);      // returns "Average", "Sum" ...
std::string_view name_of(Operation op);     // returns "allreduce" ...
std::string_view name_of(DeviceType type);  // returns "the CPU" or "a GPU", for messages
bool is_floating(DType dtype);

// Tells how a kernel scales elements: y = round(x * factor) or y = round(x / divisor). At least one of the
// two is 1: users give factors, averages give divisors (a rounded reciprocal would not return the mean of
// equal inputs exactly). Integers truncate toward zero.
struct Scale {
  double factor = 1.0;
  std::int64_t divisor = 1;
  [[nodiscard]] bool identity() const { return factor == 1.0 && divisor == 1; }
  friend bool operator==(const Scale&, const Scale&) = default;
};

}  // namespace roundelay
