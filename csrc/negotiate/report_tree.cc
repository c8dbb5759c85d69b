#include "negotiate/report_tree.h"

#include <algorithm>

#include "lock/node_tree.h"

namespace roundelay::negotiate {

ReportTree::ReportTree(std::span<const int> nodes, int size, int member, int fan_out)
    : self_(member), members_(static_cast<std::size_t>(size)) {
  std::iota(members_.begin(), members_.end(), 0);
  const auto elsewhere = std::ranges::count_if(nodes, [&](int node) { return node != nodes.front(); });
  if (elsewhere > fan_out) {
    build(nodes, fan_out);
  } else if (member > 0) {
    above_ = 0;
  } else if (size > 1) {
    below_.assign(members_.begin() + 1, members_.end());
    subtrees_[0] = members_;
  }
}

// A node has a lower number than the nodes below it.
void ReportTree::build(std::span<const int> nodes, int fan_out) {
  const auto [first, of_member] = lock::NodeNumbers(nodes);
  const auto leader_of = [&first = first](int node) { return first[static_cast<std::size_t>(node)]; };
  const int own = of_member[static_cast<std::size_t>(self_)];
  if (self_ != leader_of(own)) {
    above_ = leader_of(own);
    return;
  }
  if (own > 0) above_ = leader_of(lock::node_above(own, fan_out));
  std::vector<std::vector<int>> subtrees(first.size());
  for (const int member : members_) {
    const int node = of_member[static_cast<std::size_t>(member)];
    subtrees[static_cast<std::size_t>(node)].push_back(member);
    if (node == own && member != self_) below_.push_back(member);
  }
  for (auto node = std::ssize(first) - 1; node > own; --node) {
    std::vector<int>& here = subtrees[static_cast<std::size_t>(node)];
    const int above = lock::node_above(static_cast<int>(node), fan_out);
    std::vector<int>& all = subtrees[static_cast<std::size_t>(above)];
    all.insert(all.end(), here.begin(), here.end());
    if (above == own) below_.push_back(leader_of(static_cast<int>(node)));
  }
  for (int node = own; node < std::ssize(first); ++node) {
    int top = node;
    while (top > own) top = lock::node_above(top, fan_out);
    std::vector<int>& here = subtrees[static_cast<std::size_t>(node)];
    if (top != own || (here.size() == 1 && node != own)) continue;
    std::ranges::sort(here);
    subtrees_[leader_of(node)] = std::move(here);
  }
  std::ranges::sort(below_);
}

std::span<const int> ReportTree::subtree(int member) const {
  if (const auto found = subtrees_.find(member); found != subtrees_.end()) return found->second;
  const auto own = subtrees_.find(self_);
  const bool here = own != subtrees_.end() && std::ranges::binary_search(own->second, member);
  if (!here) return {};
  return std::span(members_).subspan(static_cast<std::size_t>(member), 1);
}

}  // namespace roundelay::negotiate
