#include "runtime/gpu/choice.h"

#include <cstddef>

namespace roundelay::runtime {
namespace {

std::string version_text(std::int32_t code) {
  return std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." +
         std::to_string(code % 100);
}

std::string rank_text(const Group& group, std::size_t member) {
  return "rank " + std::to_string(group.ranks[member]);
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
  return name == "staged" ? GpuFabricWish::kStaged : GpuFabricWish::kAuto;
}

GpuChoice choose_gpu_fabric(const std::vector<GpuCard>& cards, const Group& group, GpuFabricWish wish) {
  if (wish == GpuFabricWish::kStaged) return {false, "ROUNDELAY_GPU_FABRIC=staged"};
  for (std::size_t i = 0; i < cards.size(); ++i) {
    const std::int32_t version = cards[i].nccl_version;
    if (version == 0) {
      return {false, rank_text(group, i) +
                         " has no NCCL that can be used: see its warning, or install PyTorch "
                         "with CUDA"};
    }
    if (version != cards.front().nccl_version) {
      return {false, rank_text(group, 0) + " has NCCL " + version_text(cards.front().nccl_version) + ", " +
                         rank_text(group, i) + " has " + version_text(version) +
                         ": install the same PyTorch for all ranks"};
    }
  }
  std::string shared = one_gpu_twice(cards, group);
  return {shared.empty(), std::move(shared)};
}

}  // namespace roundelay::runtime
