// Element types, reduction operations and collective operations, which all layers share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace roundelay {

// The numbers travel in messages: append new ones.
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
  // Those of the next types are only moved: no kernel knows them.
  kUInt16,
  kUInt32,
  kUInt64,
  kFloat8E4M3FN,
  kFloat8E4M3FNUZ,
  kFloat8E5M2,
  kFloat8E5M2FNUZ,
  kFloat8E8M0FNU,
};
inline constexpr int kDTypeCount = 10;       // those that can be added up
inline constexpr int kMovedDTypeCount = 18;  // all

// Order and values equal Horovod's (hvd.Average == 0 ...).
enum class ReduceOp : std::uint8_t { kAverage, kSum, kAdasum, kMin, kMax, kProduct };
inline constexpr int kReduceOpCount = 6;

enum class Operation : std::uint8_t {
#define OPERATION(Name, ...) k##Name,
#define AGREEMENT(Name, ...) k##Name,
#include "base/operations.def"
#undef OPERATION
#undef AGREEMENT
};

// The properties of an operation, for code that treats operations alike but for these.
struct OperationTraits {
  std::string_view name;
  bool has_tensors = true;         // requests describe tensors, which have to agree
  bool reduces = false;            // reduce_op and factors have a meaning, and have to agree
  bool rows_may_differ = false;    // ranks may have different first extents
  bool has_root = false;           // request.root is a rank, which may not have joined
  bool needs_all = false;          // no rank may have joined
  bool differs_each_time = false;  // the response cache keeps no request, as no two uses are equal
};
inline constexpr OperationTraits kOperations[] = {
#define OPERATION(Name, text, ...) OperationTraits{.name = text __VA_OPT__(, ) __VA_ARGS__},
#define AGREEMENT(Name, text, ...) OperationTraits{.name = text __VA_OPT__(, ) __VA_ARGS__},
#include "base/operations.def"
#undef OPERATION
#undef AGREEMENT
};
inline constexpr int kOperationCount = std::size(kOperations);
inline constexpr const OperationTraits& traits_of(Operation operation) {
  return kOperations[static_cast<std::size_t>(operation)];
}

// The kind of device that holds a tensor. A job may mix both; one operation uses the same kind on all ranks.
enum class DeviceType : std::uint8_t { kCpu, kGpu };
inline constexpr int kDeviceTypeCount = 2;

inline constexpr std::array<std::size_t, kMovedDTypeCount> kDTypeSizes = {8, 4, 2, 2, 8, 4, 2, 1, 1,
                                                                          1, 2, 4, 8, 1, 1, 1, 1, 1};
inline constexpr std::array<std::string_view, kMovedDTypeCount> kDTypeNames = {
    "float64", "float32",       "float16",         "bfloat16",    "int64",           "int32",
    "int16",   "int8",          "uint8",           "bool",        "uint16",          "uint32",
    "uint64",  "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"};
inline constexpr std::array<std::string_view, kReduceOpCount> kReduceOpNames = {"Average", "Sum", "Adasum",
                                                                                "Min",     "Max", "Product"};

// Returns the bytes of one element.
constexpr std::size_t size_of(DType dtype) { return kDTypeSizes[static_cast<std::size_t>(dtype)]; }
// Returns whether kernels know the type; otherwise its elements are only moved.
constexpr bool can_reduce(DType dtype) { return static_cast<int>(dtype) < kDTypeCount; }
constexpr bool is_floating(DType dtype) { return dtype <= DType::kBFloat16; }
// Returns torch's name: "float32", "bfloat16" ...
constexpr std::string_view name_of(DType dtype) { return kDTypeNames[static_cast<std::size_t>(dtype)]; }
// Returns "Average", "Sum" ...
constexpr std::string_view name_of(ReduceOp op) { return kReduceOpNames[static_cast<std::size_t>(op)]; }
// Returns "the CPU" or "a GPU", for messages.
constexpr std::string_view name_of(DeviceType type) { return type == DeviceType::kCpu ? "the CPU" : "a GPU"; }
// Returns "allreduce" ...
constexpr std::string_view name_of(Operation operation) { return traits_of(operation).name; }

// Tells how a kernel scales elements: y = round(x * factor) or y = round(x / divisor). At least one of the
// two is 1: users give factors, averages give divisors (a rounded reciprocal would not return the mean of
// equal inputs exactly). Integers truncate toward zero.
struct Scale {
  double factor = 1.0;
  std::int64_t divisor = 1;
  [[nodiscard]] constexpr bool identity() const { return factor == 1.0 && divisor == 1; }
  friend bool operator==(const Scale&, const Scale&) = default;
};

// Returns how the sum of `members` parts is scaled so that it is their average. `before` scales the parts,
// and `after` the average.
constexpr Scale average_of(const Scale& before, Scale after, int members) {
  if (before.identity() && after.identity()) {
    after.divisor = members;
  } else {
    after.factor /= members;
  }
  return after;
}

}  // namespace roundelay
