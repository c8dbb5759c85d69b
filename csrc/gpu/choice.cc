#include "gpu/choice.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>

namespace roundelay::gpu {
namespace {

struct NamedWish {
  std::string_view name;
  GpuFabricWish wish;
};
constexpr NamedWish kWishes[] = {{"auto", GpuFabricWish::kAuto},
                                 {"mpi", GpuFabricWish::kMpi},
                                 {"nccl", GpuFabricWish::kNccl},
                                 {"staged", GpuFabricWish::kStaged},
                                 {"two_level", GpuFabricWish::kTwoLevel}};

std::string version_text(std::int32_t code) {
  return std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." +
         std::to_string(code % 100);
}

std::string rank_text(const Group& group, std::size_t member) {
  return "rank " + std::to_string(group.ranks[member]);
}

std::string count_text(std::size_t ranks) {
  return std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
}

bool on_one_node(const GpuInfo& one, const GpuInfo& other) { return one.node == other.node; }

// Returns why NCCL's communicator would fail. Empty: it would not. `within_nodes`: each node has its own
// communicator, so that versions may differ between nodes.
std::string unlike_nccl(const std::vector<GpuInfo>& gpu_infos, const Group& group, bool within_nodes) {
  for (std::size_t i = 0; i < gpu_infos.size(); ++i) {
    const std::int32_t version = gpu_infos[i].nccl_version;
    if (version == 0) {
      return rank_text(group, i) +
             " has no NCCL that can be used: see its warning, or install PyTorch with CUDA";
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (gpu_infos[j].nccl_version == version || (within_nodes && !on_one_node(gpu_infos[i], gpu_infos[j])))
        continue;
      return rank_text(group, j) + " has NCCL " + version_text(gpu_infos[j].nccl_version) + ", " +
             rank_text(group, i) + " has " + version_text(version) +
             ": install the same PyTorch for all ranks";
    }
  }
  return {};
}

using Nodes = std::map<std::string_view, std::size_t>;  // number of ranks by node

Nodes nodes_of(const std::vector<GpuInfo>& gpu_infos) {
  Nodes nodes;
  for (const GpuInfo& gpu_info : gpu_infos) ++nodes[gpu_info.node.data()];
  return nodes;
}

std::string no_levels(const std::vector<GpuInfo>& gpu_infos, const Group& group) {
  const Nodes nodes = nodes_of(gpu_infos);
  const std::size_t first = nodes.at(gpu_infos.front().node.data());
  for (std::size_t i = 1; i < gpu_infos.size(); ++i) {
    const std::size_t ranks = nodes.at(gpu_infos[i].node.data());
    if (ranks == first) continue;
    return "process set " + std::to_string(group.id) + " has " + count_text(first) + " on the node of " +
           rank_text(group, 0) + " and " + std::to_string(ranks) + " on that of " + rank_text(group, i) +
           ": start equally many on each node";
  }
  const auto flat = std::ranges::find(gpu_infos, 0U, &GpuInfo::has_levels);
  if (flat == gpu_infos.end()) return {};
  return rank_text(group, static_cast<std::size_t>(flat - gpu_infos.begin())) +
         " does not share memory with the ranks of its node: see the warning about shared memory, and leave "
         "ROUNDELAY_FABRIC unset";
}

std::string one_gpu_twice(const std::vector<GpuInfo>& gpu_infos, const Group& group) {
  for (std::size_t i = 0; i < gpu_infos.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (gpu_infos[i].identity != gpu_infos[j].identity ||
          (gpu_infos[i].may_share != 0 && gpu_infos[j].may_share != 0)) {
        continue;
      }
      return rank_text(group, j) + " and " + rank_text(group, i) + " are on one GPU (" +
             gpu_infos[i].identity.data() +
             "): call torch.cuda.set_device(hvd.local_rank()) before tensors are made, or, if they are meant "
             "to share it, set NCCL_MULTI_RANK_GPU_ENABLE=1 (NCCL 2.30 or later)";
    }
  }
  return {};
}

}  // namespace

GpuFabricWish gpu_fabric_wish(const std::string& name) {
  const auto* const found = std::ranges::find(kWishes, name, &NamedWish::name);
  return found == std::end(kWishes) ? GpuFabricWish::kAuto : found->wish;
}

std::string_view name_of(GpuFabricWish wish) {
  return std::ranges::find(kWishes, wish, &NamedWish::wish)->name;
}

GpuChoice choose_gpu_fabric(const std::vector<GpuInfo>& gpu_infos, const Group& group, GpuFabricWish wish) {
  if (wish == GpuFabricWish::kStaged) return {GpuFabricKind::kStaged, "ROUNDELAY_GPU_FABRIC=staged"};
  if (wish == GpuFabricWish::kMpi) {
    const auto refuses =
        std::ranges::find_if(gpu_infos, [](const GpuInfo& one) { return one.why_not_mpi[0] != 0; });
    if (refuses == gpu_infos.end()) return {GpuFabricKind::kMpi, {}};
    const auto member = static_cast<std::size_t>(refuses - gpu_infos.begin());
    return {GpuFabricKind::kStaged, rank_text(group, member) + ": " + refuses->why_not_mpi.data()};
  }
  // A process set may span fewer nodes than the job. All members on one node use NCCL. One member on each
  // node leaves nothing to NCCL.
  const std::size_t nodes = wish == GpuFabricWish::kTwoLevel ? nodes_of(gpu_infos).size() : 1;
  if (nodes > 1 && nodes == gpu_infos.size()) return {};
  const bool levels = nodes > 1;
  std::string why = levels ? no_levels(gpu_infos, group) : std::string();
  if (why.empty()) why = unlike_nccl(gpu_infos, group, levels);
  if (why.empty()) why = one_gpu_twice(gpu_infos, group);
  if (!why.empty()) return {GpuFabricKind::kStaged, std::move(why)};
  return {levels ? GpuFabricKind::kTwoLevel : GpuFabricKind::kNccl, {}};
}

}  // namespace roundelay::gpu
