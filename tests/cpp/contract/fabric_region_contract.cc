// Calls whose memory lies in regions, in which members may access each other's memory.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "tests/cpp/contract/fabric_contract.h"

namespace roundelay::contract {
namespace {

using collective::AllgatherCall;
using collective::ReducescatterCall;
using Sizes = std::vector<std::size_t>;

constexpr std::size_t kRegionBytes = 192 << 10;
constexpr std::byte kGuard{0x5a};

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

std::string in_regions(Medium& medium, int size, Select select) {
  return medium.run(size, select, [](Fabric& fabric) {
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

std::string without_absent_ones(Medium& medium, int size, Select select) {
  if (size < 2) return {};
  return medium.run(size, select, [size](Fabric& fabric) {
    const auto region = next_region(fabric, 9);
    if (!region.ok()) return region.status().message();
    for (int away = 0; away < size; ++away) {
      const Case of{DType::kFloat32, ReduceOp::kSum, 128, 30001};
      if (std::string error = same_bits(fabric, **region, of, {away}); !error.empty()) return error;
    }
    return std::string();
  });
}

// The parts of all members, each of another size. Absent ones have none.
struct Parts {
  Parts(const Fabric& fabric, DType dtype, std::size_t unit, const std::vector<int>& absent) {
    const int self = fabric.group().index;
    for (int member = 0; member < fabric.group().size(); ++member) {
      const bool away = std::ranges::binary_search(absent, member);
      const std::size_t count = away ? 0 : unit * static_cast<std::size_t>((member * 2 + 1) % 3);
      sizes.push_back(count * size_of(dtype));
      if (member < self) before += sizes.back();
      if (member == self) own = sizes.back();
      all += sizes.back();
    }
  }

  Sizes sizes;
  std::size_t before = 0, own = 0, all = 0;  // bytes
};

// What the region of a member holds when only these bytes of it are not guards.
std::vector<std::byte> image(std::size_t offset, const std::vector<std::byte>& bytes) {
  std::vector<std::byte> memory(kRegionBytes, kGuard);
  std::ranges::copy(bytes, memory.begin() + static_cast<std::ptrdiff_t>(offset));
  return memory;
}

// Compares a reduce-scatter in a region with the same one elsewhere. In the region it changes this member's
// shard alone.
std::string same_shard(Fabric& fabric, const Region& region, const Case& of, const std::vector<int>& absent) {
  const int self = fabric.group().index;
  const Parts parts(fabric, of.dtype, of.count, absent);
  auto given = random_elements(parts.all / size_of(of.dtype), of.dtype, static_cast<unsigned>(self + 1));
  std::vector<std::byte> shard(parts.own);
  auto call = patient<ReducescatterCall>();
  call.dtype = of.dtype;
  call.reduce_op = of.op;
  call.absent = absent;
  if (of.op == ReduceOp::kSum && is_floating(of.dtype)) call.scale = {1.0, fabric.group().size()};
  call.shard_bytes = parts.sizes;
  call.input = given.data();
  call.output = shard;
  if (std::string error = run_call(fabric, call); !error.empty()) return error;
  std::ranges::copy(image(of.offset, given), region.own.begin());
  call.input = region.own.data() + of.offset;
  call.output = region.own.subspan(of.offset + parts.before, parts.own);
  call.region = &region;
  if (std::string error = run_call(fabric, call); !error.empty()) return error;
  if (std::ranges::binary_search(absent, self)) shard.clear();
  std::ranges::copy(shard, given.begin() + static_cast<std::ptrdiff_t>(parts.before));
  const bool same = std::ranges::equal(region.own, image(of.offset, given));
  return same ? "" : "reduce-scatter of " + std::string(name_of(of.dtype)) + ": other bytes in a region";
}

// Compares an all-gather in a region with the same one elsewhere.
std::string same_parts(Fabric& fabric, const Region& region, const Case& of, const std::vector<int>& absent) {
  const int self = fabric.group().index;
  const Parts parts(fabric, of.dtype, of.count, absent);
  const auto own = random_elements(parts.own / size_of(of.dtype), of.dtype, static_cast<unsigned>(self + 1));
  std::vector<std::byte> all(parts.all, kGuard);
  auto call = patient<AllgatherCall>();
  call.absent = absent;
  call.receive_bytes = parts.sizes;
  call.input = own.data();
  call.output = all;
  if (std::string error = run_call(fabric, call); !error.empty()) return error;
  std::ranges::copy(image(of.offset + parts.before, own), region.own.begin());
  call.output = region.own.subspan(of.offset, parts.all);
  call.input = call.output.data() + parts.before;
  call.region = &region;
  if (std::string error = run_call(fabric, call); !error.empty()) return error;
  const bool same = std::ranges::equal(region.own, image(of.offset, all));
  return same ? "" : "all-gather of " + std::to_string(parts.all) + " bytes: other bytes in a region";
}

std::string both_ways(Fabric& fabric, const Region& region, const Case& of, const std::vector<int>& absent) {
  std::string error = same_shard(fabric, region, of, absent);
  return error.empty() ? same_parts(fabric, region, of, absent) : error;
}

std::string shards_in_regions(Medium& medium, int size, Select select) {
  return medium.run(size, select, [size](Fabric& fabric) {
    const auto region = next_region(fabric, 11);
    if (!region.ok()) return region.status().message();
    for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
      for (const std::size_t unit : {std::size_t{0}, std::size_t{1}, std::size_t{77}, std::size_t{1001}}) {
        const Case of{static_cast<DType>(dtype), ReduceOp::kSum, 4096 + 8, unit};
        if (std::string error = both_ways(fabric, **region, of, {}); !error.empty()) return error;
      }
    }
    const std::size_t most = kRegionBytes / sizeof(float) / 2 / static_cast<std::size_t>(size);
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct, ReduceOp::kSum}) {
      const Case of{DType::kFloat32, op, 0, most};
      if (std::string error = both_ways(fabric, **region, of, {}); !error.empty()) return error;
    }
    return std::string();
  });
}

std::string shards_without_absent_ones(Medium& medium, int size, Select select) {
  if (size < 2) return {};
  return medium.run(size, select, [size](Fabric& fabric) {
    const auto region = next_region(fabric, 13);
    if (!region.ok()) return region.status().message();
    for (int away = 0; away < size; ++away) {
      const Case of{DType::kFloat32, ReduceOp::kSum, 132, 1501};
      if (std::string error = both_ways(fabric, **region, of, {away}); !error.empty()) return error;
    }
    return std::string();
  });
}

// Starts a call that one change has spoiled. Returns an error if the fabric takes it.
template <class Kind, class Spoil>
std::string refused(Fabric& fabric, Kind call, const Spoil& spoil, const std::string& what) {
  spoil(call);
  const auto started = fabric.start(call);
  return started.status().code() == StatusCode::kInvalidArgument ? "" : "took " + what;
}

// A fabric refuses memory that is not where the call says, and goes on.
std::string refusals(Medium& medium, int size, Select select) {
  return medium.run(size, select, [](Fabric& fabric) -> std::string {
    const auto region = next_region(fabric, 15);
    if (!region.ok()) return region.status().message();
    const ByteSpan own = (*region)->own;
    const auto members = fabric.group().ranks.size(), self = static_cast<std::size_t>(fabric.group().index);
    std::vector<std::byte> elsewhere(4 * members);
    auto reduce = allreduce_over(own.data(), own.size());
    reduce.buffer.region = region->get();
    auto scatter = patient<ReducescatterCall>();
    scatter.shard_bytes.assign(members, 4);
    scatter.input = own.data();
    scatter.output = own.subspan(4 * self, 4);
    scatter.region = region->get();
    auto gather = patient<AllgatherCall>();
    gather.receive_bytes.assign(members, 4);
    gather.output = own.last(4 * members);
    gather.input = gather.output.data() + 4 * self;
    gather.region = region->get();
    const std::string errors[] = {
        refused(
            fabric, reduce, [](auto& c) { c.buffer.offset = 4; }, "an allreduce beyond its region"),
        refused(
            fabric, reduce,
            [&](auto& c) {
              c.buffer = {elsewhere.data(), 0, 4, c.buffer.region};
            },
            "an allreduce outside its region"),
        refused(
            fabric, scatter, [&](auto& c) { c.input = elsewhere.data(); }, "an input elsewhere"),
        refused(
            fabric, scatter, [&](auto& c) { c.input = own.data() - 4, c.output = own.first(4); },
            "an input before the region"),
        refused(
            fabric, scatter, [&](auto& c) { c.output = own.subspan(4 * members, 4); },
            "a shard that is not in its place"),
        refused(
            fabric, gather,
            [&](auto& c) {
              c.output = {own.data() + own.size(), c.output.size()};
            },
            "an output beyond its region"),
        refused(
            fabric, gather, [&](auto& c) { c.input = elsewhere.data(); },
            "an input that is not in its place"),
    };
    for (const std::string& error : errors) {
      if (!error.empty()) return error;
    }
    if (fabric.poisoned()) return "a refused call poisoned the fabric";
    if (std::string error = run_call(fabric, scatter); !error.empty()) return error;
    return run_call(fabric, gather);
  });
}

}  // namespace

std::vector<Test> region_tests() {
  return {{"in regions as anywhere", in_regions},
          {"in regions, some members away", without_absent_ones},
          {"shards in regions as anywhere", shards_in_regions},
          {"shards in regions, some members away", shards_without_absent_ones},
          {"refused calls in regions", refusals}};
}

}  // namespace roundelay::contract
