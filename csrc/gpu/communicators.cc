#include "gpu/communicators.h"

#include <algorithm>
#include <utility>

namespace roundelay::gpu {

Communicators::Names Communicators::names() const {
  Names names{};
  for (std::size_t i = 0; i < groups_.size(); ++i) names[i] = groups_[i]->index == 0;
  return names;
}

Status Communicators::begin(platform::NcclApi& nccl, int device, std::vector<GpuInfo> infos,
                            const Group& all) {
  nccl_ = &nccl;
  device_ = device;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const auto first = std::ranges::find(all.ranks, groups_[i]->ranks.front());
    ids_.push_back(infos[static_cast<std::size_t>(first - all.ranks.begin())].ids[i]);
  }
  return join_next();
}

Status Communicators::join_next() {
  const std::size_t number = made_.size();
  const Group& those = *groups_[number];
  auto joining = nccl_->join(ids_[number], those.size(), those.index, device_);
  if (!joining.ok()) return joining.status();
  made_.push_back(std::move(joining).value());
  return {};
}

Result<bool> Communicators::ready() {
  Result<bool> last = made_.back()->ready();
  if (!last.ok() || !*last || made_.size() == groups_.size()) return last;
  ROUNDELAY_RETURN_IF_ERROR(join_next());
  return false;
}

void Communicators::abort() {
  for (const Ptr& communicator : made_) communicator->abort();
  made_.clear();
}

}  // namespace roundelay::gpu
