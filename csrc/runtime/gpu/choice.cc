#include "runtime/gpu/choice.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>

namespace roundelay::runtime {
namespace {

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

bool on_one_node(const GpuCard& one, const GpuCard& other) { return one.node == other.node; }

// What lets a member's communicator fail. Where NCCL stays within the nodes, so do its demands.
std::string unlike_nccl(const std::vector<GpuCard>& cards, const Group& group, bool within_nodes) {
  for (std::size_t i = 0; i < cards.size(); ++i) {
    const std::int32_t version = cards[i].nccl_version;
    if (version == 0) {
      return rank_text(group, i) +
             " has no NCCL that can be used: see its warning, or install PyTorch with CUDA";
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (cards[j].nccl_version == version || (within_nodes && !on_one_node(cards[i], cards[j]))) continue;
      return rank_text(group, j) + " has NCCL " + version_text(cards[j].nccl_version) + ", " +
             rank_text(group, i) + " has " + version_text(version) +
             ": install the same PyTorch for all ranks";
    }
  }
  return {};
}

using Nodes = std::map<std::string_view, std::size_t>;  // how many ranks there are on each

Nodes nodes_of(const std::vector<GpuCard>& cards) {
  Nodes nodes;
  for (const GpuCard& card : cards) ++nodes[card.node.data()];
  return nodes;
}

std::string no_levels(const std::vector<GpuCard>& cards, const Group& group) {
  const Nodes nodes = nodes_of(cards);
  const std::size_t first = nodes.at(cards.front().node.data());
  for (std::size_t i = 1; i < cards.size(); ++i) {
    const std::size_t ranks = nodes.at(cards[i].node.data());
    if (ranks == first) continue;
    return "process set " + std::to_string(group.id) + " has " + count_text(first) + " on the node of " +
           rank_text(group, 0) + " and " + std::to_string(ranks) + " on that of " + rank_text(group, i) +
           ": start equally many on each node";
  }
  const auto flat = std::ranges::find(cards, 0U, &GpuCard::has_levels);
  if (flat == cards.end()) return {};
  return rank_text(group, static_cast<std::size_t>(flat - cards.begin())) +
         " does not share memory with the ranks of its node: see the warning about shared memory, and leave "
         "ROUNDELAY_FABRIC unset";
}

std::string one_gpu_twice(const std::vector<GpuCard>& cards, const Group& group) {
  for (std::size_t i = 0; i < cards.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (cards[i].identity != cards[j].identity || (cards[i].may_share != 0 && cards[j].may_share != 0)) {
        continue;
      }
      return rank_text(group, j) + " and " + rank_text(group, i) + " are on one GPU (" +
             cards[i].identity.data() +
             "): call torch.cuda.set_device(hvd.local_rank()) before tensors are made, or, if they are meant "
             "to share it, set NCCL_MULTI_RANK_GPU_ENABLE=1 (NCCL 2.30 or later)";
    }
  }
  return {};
}

}  // namespace

GpuFabricWish gpu_fabric_wish(const std::string& name) {
  if (name == "nccl") return GpuFabricWish::kNccl;
  if (name == "two_level") return GpuFabricWish::kTwoLevel;
  return name == "staged" ? GpuFabricWish::kStaged : GpuFabricWish::kAuto;
}

GpuChoice choose_gpu_fabric(const std::vector<GpuCard>& cards, const Group& group, GpuFabricWish wish) {
  if (wish == GpuFabricWish::kStaged) return {GpuWay::kStaged, "ROUNDELAY_GPU_FABRIC=staged"};
  // A set may have less of them than the job: all on one node is NCCL's, one on each is the host's.
  const std::size_t nodes = wish == GpuFabricWish::kTwoLevel ? nodes_of(cards).size() : 1;
  if (nodes > 1 && nodes == cards.size()) return {};
  const bool levels = nodes > 1;
  std::string why = levels ? no_levels(cards, group) : std::string();
  if (why.empty()) why = unlike_nccl(cards, group, levels);
  if (why.empty()) why = one_gpu_twice(cards, group);
  if (!why.empty()) return {GpuWay::kStaged, std::move(why)};
  return {levels ? GpuWay::kTwoLevel : GpuWay::kNccl, {}};
}

}  // namespace roundelay::runtime
