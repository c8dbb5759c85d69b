// Which fabric a group uses between its GPUs: what members tell each other of theirs, and what follows from
// it. Pure: all members come to the same end.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/group.h"
#include "platform/nccl/api.h"

namespace roundelay::runtime {

enum class GpuFabricWish : std::uint8_t { kAuto, kNccl, kStaged, kTwoLevel };  // ROUNDELAY_GPU_FABRIC

GpuFabricWish gpu_fabric_wish(const std::string& name);

// Of one member, as it travels.
struct GpuInfo {
  std::int32_t nccl_version = 0;    // 0: it has no NCCL
  std::uint32_t may_share = 0;      // it allows another rank on its GPU
  std::uint32_t has_levels = 0;     // its fabric for the CPU has one inside the node, one between
  std::array<char, 64> identity{};  // of its GPU, the beginning
  std::array<char, 128> node{};     // its node's, likewise
  platform::NcclId id{};            // of a communicator's first member: the communicator's
};

enum class GpuWay : std::uint8_t { kStaged, kNccl, kTwoLevel };

struct GpuChoice {
  GpuWay way = GpuWay::kStaged;
  std::string why;  // why it is not as wished; names ranks, cause and cure
};

// `gpu_infos`: by member.
GpuChoice choose_gpu_fabric(const std::vector<GpuInfo>& gpu_infos, const Group& group, GpuFabricWish wish);

}  // namespace roundelay::runtime
