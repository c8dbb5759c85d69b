// Allreduces of buffers in regions, in which members may access each other's memory.
#include <algorithm>
#include <cstring>

#include "tests/cpp/contract/fabric_contract.h"

namespace roundelay::contract {
namespace {

constexpr std::size_t kRegionBytes = 192 << 10;

// Makes a region. All members make their regions in the same order.
Result<RegionPtr> next_region(Fabric& fabric, std::uint64_t key) {
  auto region = fabric.capabilities().make_region(key, kRegionBytes);
  if (!region.ok()) return region;
  const std::string error = run_call(fabric, patient<BarrierCall>());
  return error.empty() ? region : Result<RegionPtr>(Status::internal(error));
}

struct Case {
  DType dtype;
  ReduceOp op;
  std::size_t offset, count;
};

// Compares an allreduce in a region with the same one elsewhere: both give the same bits and change nothing
// else.
std::string same_bits(Fabric& fabric, const Region& region, const Case& of, const std::vector<int>& absent) {
  const int self = fabric.group().index;
  const std::size_t bytes = of.count * size_of(of.dtype);
  std::vector<std::byte> anywhere = random_elements(of.count, of.dtype, static_cast<unsigned>(self + 1));
  std::memset(region.own.data(), 0x5a, region.own.size());
  std::copy(anywhere.begin(), anywhere.end(), region.own.data() + of.offset);
  AllreduceCall call = allreduce_over(anywhere.data(), bytes);
  call.dtype = of.dtype;
  call.reduce_op = of.op;
  call.absent = absent;
  if (of.op == ReduceOp::kSum && is_floating(of.dtype)) call.scale = {1.0, fabric.group().size()};
  if (std::string error = run_call(fabric, call); !error.empty()) return error;
  call.buffer = {region.own.data(), of.offset, bytes, &region};
  if (std::string error = run_call(fabric, call); !error.empty()) return error;
  const std::string what = std::to_string(of.count) + " of " + std::string(name_of(of.dtype));
  if (!std::equal(anywhere.begin(), anywhere.end(), region.own.data() + of.offset)) {
    return what + ": other bits in a region";
  }
  const auto untouched = std::count(region.own.begin(), region.own.end(), std::byte{0x5a});
  const auto inside = std::count(anywhere.begin(), anywhere.end(), std::byte{0x5a});
  const auto outside = static_cast<std::ptrdiff_t>(region.own.size() - bytes);
  return untouched == outside + inside ? "" : what + ": bytes beside the buffer were touched";
}

std::string in_regions(Medium& medium, int size) {
  return medium.run(size, collective::select_algorithm, [](Fabric& fabric) {
    const auto region = next_region(fabric, 7);
    if (!region.ok()) return region.status().message();
    if ((*region)->key != 7 || (*region)->own.size() != kRegionBytes) return std::string("another region");
    for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{77}, std::size_t{20003}}) {
        const Case of{static_cast<DType>(dtype), ReduceOp::kSum, 4096, count};
        if (std::string error = same_bits(fabric, **region, of, {}); !error.empty()) return error;
      }
    }
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
      const Case of{DType::kFloat32, op, 64, 20000};
      if (std::string error = same_bits(fabric, **region, of, {}); !error.empty()) return error;
    }
    // The whole region, and nothing of it.
    for (const std::size_t count : {kRegionBytes / sizeof(float), std::size_t{0}}) {
      const Case of{DType::kFloat32, ReduceOp::kSum, 0, count};
      if (std::string error = same_bits(fabric, **region, of, {}); !error.empty()) return error;
    }
    return std::string();
  });
}

std::string without_absent_ones(Medium& medium, int size) {
  if (size < 2) return {};
  return medium.run(size, collective::select_algorithm, [size](Fabric& fabric) {
    const auto region = next_region(fabric, 9);
    if (!region.ok()) return region.status().message();
    for (int away = 0; away < size; ++away) {
      const Case of{DType::kFloat32, ReduceOp::kSum, 128, 30001};
      if (std::string error = same_bits(fabric, **region, of, {away}); !error.empty()) return error;
    }
    return std::string();
  });
}

}  // namespace

std::vector<Test> region_tests() {
  return {{"in regions as anywhere", in_regions}, {"in regions, some members away", without_absent_ones}};
}

}  // namespace roundelay::contract
