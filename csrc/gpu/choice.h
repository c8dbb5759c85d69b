// Chooses the fabric that a group uses between its GPUs, from the GPU infos that its members exchange. Pure:
// all members choose the same.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/group.h"
#include "platform/nccl/api.h"

namespace roundelay::gpu {

enum class GpuFabricWish : std::uint8_t { kAuto, kMpi, kNccl, kStaged, kTwoLevel };  // ROUNDELAY_GPU_FABRIC

// Parses the value of ROUNDELAY_GPU_FABRIC. An unknown name is kAuto.
GpuFabricWish gpu_fabric_wish(const std::string& name);
// Returns the value of ROUNDELAY_GPU_FABRIC that is this wish.
std::string_view name_of(GpuFabricWish wish);

// Tells the other members about this one's GPU. It travels as these bytes.
struct GpuInfo {
  std::int32_t nccl_version = 0;    // 0: the member has no NCCL
  std::uint32_t may_share = 0;      // 1: it allows another rank on its GPU
  std::uint32_t has_levels = 0;     // 1: its CPU fabric has levels
  std::array<char, 64> identity{};  // the GPU's identity, cut to 63 characters
  std::array<char, 128> node{};     // the node's id, cut to 127 characters
  std::array<char, 256>
      why_not_mpi{};  // the reason if MPI does not take its memory, cut to 255 characters; empty: it does
  // Name the communicators of the member's groups (GpuFabric::joining()), one after the other. Set by a
  // group's first member only.
  std::array<platform::NcclId, 2> ids{};
};

// The kinds of fabric between GPUs. kStaged: through host memory. kTwoLevel: NCCL inside the nodes, host
// memory between them. kMpi: MPI moves the GPUs' memory.
enum class GpuFabricKind : std::uint8_t { kStaged, kNccl, kTwoLevel, kMpi };

struct GpuChoice {
  GpuFabricKind kind = GpuFabricKind::kStaged;
  std::string why;  // the ranks, cause and cure if NCCL, or MPI, is not used; empty: it is as wished
};

// Returns the choice for the group. `gpu_infos`: one for each member, in the group's order.
GpuChoice choose_gpu_fabric(const std::vector<GpuInfo>& gpu_infos, const Group& group, GpuFabricWish wish);

}  // namespace roundelay::gpu
