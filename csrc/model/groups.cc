#include "model/groups.h"

#include <algorithm>

namespace roundelay::model {

Groups::Groups(const Cluster& cluster, bool symmetric)
    : cluster_(cluster), symmetric_(symmetric), ranks_(symmetric ? 1 : model::ranks(cluster)) {
  const auto add = [this](int count, double bandwidth) {
    first_.push_back(static_cast<int>(ends_.size()));
    ends_.insert(ends_.end(), static_cast<std::size_t>(count), bandwidth);
  };
  for (const Level& level : cluster.levels)
    add((ranks_ + level.link.sharers - 1) / level.link.sharers, level.link.bandwidth);
  add(ranks_, cluster.memory_bandwidth);
}

int Groups::count(const Stage& stage) const {
  if (symmetric_ || (stage.kind == Stage::Kind::kLink && stage.whole)) return 1;
  if (stage.kind != Stage::Kind::kLink) return ranks_;
  return ranks_ / cluster_.levels[stage.level].parts;
}

int Groups::group_of(const Stage& stage, int rank) const {
  if (symmetric_) return 0;
  if (stage.kind != Stage::Kind::kLink) return rank;
  if (stage.whole) return 0;
  const int stride = ranks_in_part(cluster_, stage.level);
  const int place = rank % stride;
  if (stage.senders > 0 && place >= stage.senders) return -1;
  return place + rank / (stride * cluster_.levels[stage.level].parts) * stride;
}

std::vector<int> Groups::members(const Stage& stage, int group) const {
  if (symmetric_) return {0};
  if (stage.kind != Stage::Kind::kLink) return {group};
  std::vector<int> found;
  if (stage.whole) {
    for (int rank = 0; rank < ranks_; ++rank) found.push_back(rank);
    return found;
  }
  const int stride = ranks_in_part(cluster_, stage.level);
  if (stage.senders > 0 && group % stride >= stage.senders) return found;
  const int parts = cluster_.levels[stage.level].parts;
  for (int part = 0; part < parts; ++part)
    found.push_back(group / stride * stride * parts + part * stride + group % stride);
  return found;
}

std::vector<Groups::Share> Groups::shares(const Stage& stage, int group) const {
  const std::size_t levels = cluster_.levels.size();
  if (stage.kind == Stage::Kind::kMemory) return {{first_[levels] + group, 1}};
  const int first = first_[stage.level], last = first_[stage.level + 1];
  const int together = flows(stage, cluster_);
  std::vector<Share> found;
  if (symmetric_ || stage.whole) {
    for (int end = first; end < last; ++end) found.push_back({end, static_cast<double>(together)});
    return found;
  }
  const int sharers = cluster_.levels[stage.level].link.sharers;
  for (const int rank : members(stage, group)) found.push_back({first + rank / sharers, 1});
  return found;
}

}  // namespace roundelay::model
