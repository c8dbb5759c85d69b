#include "base/dtype.h"

#include <array>

namespace roundelay {
namespace {

constexpr std::array<std::size_t, kDTypeCount> kSizes = {8, 4, 2, 2, 8, 4, 2, 1, 1, 1};
constexpr std::array<std::string_view, kDTypeCount> kDTypeNames = {
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"};
constexpr std::array<std::string_view, kReduceOpCount> kReduceOpNames = {"Average", "Sum", "Adasum",
                                                                         "Min",     "Max", "Product"};

}  // namespace

std::size_t size_of(DType dtype) { return kSizes[static_cast<std::size_t>(dtype)]; }
std::string_view name_of(DType dtype) { return kDTypeNames[static_cast<std::size_t>(dtype)]; }
std::string_view name_of(ReduceOp op) { return kReduceOpNames[static_cast<std::size_t>(op)]; }
std::string_view name_of(DeviceType type) { return type == DeviceType::kCpu ? "the CPU" : "a GPU"; }
bool is_floating(DType dtype) { return dtype <= DType::kBFloat16; }

}  // namespace roundelay
