#include "bootstrap/rank_info.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>

namespace roundelay::bootstrap {

RankInfo rank_info_of(int rank, const std::vector<std::string>& node_ids) {
  std::map<std::string, std::vector<int>> ranks_of;
  for (std::size_t r = 0; r < node_ids.size(); ++r) ranks_of[node_ids[r]].push_back(static_cast<int>(r));

  RankInfo p;
  p.rank = rank;
  p.size = static_cast<int>(node_ids.size());
  const auto& mine = ranks_of[node_ids[static_cast<std::size_t>(rank)]];
  p.local_size = static_cast<int>(mine.size());
  while (mine[static_cast<std::size_t>(p.local_rank)] != rank) ++p.local_rank;

  p.cross_size = 0;
  const auto slot = static_cast<std::size_t>(p.local_rank);
  for (const auto& [id, ranks] : ranks_of) {
    if (ranks.size() != mine.size()) p.homogeneous = false;
    if (ranks.size() <= slot) continue;
    ++p.cross_size;
    if (ranks[slot] < rank) ++p.cross_rank;  // nodes count in the order of their ranks, not of their names
  }
  return p;
}

std::string node_id(const std::string& override) {
  if (!override.empty()) return override;
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return std::string(host.data()) + "/" + boot;
}

}  // namespace roundelay::bootstrap
