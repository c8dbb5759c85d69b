#include "collective/levels/route.h"

#include <algorithm>
#include <utility>

namespace roundelay::collective::levels {
namespace {

// A smaller share costs more by its message than it saves.
constexpr std::size_t kLeastShare = 32 << 10;
constexpr std::size_t kLine = 64;  // shares begin at multiples of it, and so at whole elements

std::size_t end_of(const ByteRange& range) { return range.offset + range.bytes; }

// Cuts a range into so many parts, as even as lines allow.
std::vector<ByteRange> cut(const ByteRange& range, std::size_t parts) {
  std::vector<ByteRange> ranges;
  std::size_t begin = 0;
  for (std::size_t i = 1; i <= parts; ++i) {
    const std::size_t end = i == parts ? range.bytes : range.bytes / parts * i / kLine * kLine;
    if (end > begin) ranges.push_back({range.offset + begin, end - begin});
    begin = end;
  }
  return ranges;
}

std::size_t share_count(const ByteRange& range, std::size_t most) {
  return std::clamp<std::size_t>(range.bytes / kLeastShare, 1, most);
}

}  // namespace

void join_neighbours(std::vector<Holdings>& lists) {
  std::vector<Holdings> joined;
  for (Holdings& held : lists) {
    const bool follows = !joined.empty() && end_of(range_of(joined.back())) == held.front().bytes.offset &&
                         joined.back().back().rank < held.front().rank;
    if (follows) {
      joined.back().insert(joined.back().end(), held.begin(), held.end());
    } else {
      joined.push_back(std::move(held));
    }
  }
  lists = std::move(joined);
}

Router::Router(Tree tree, int rank) : tree_(std::move(tree)), rank_(rank), children_(tree_.size()) {
  for (std::size_t level = 0; level < tree_.size(); ++level) {
    std::vector<std::size_t>& part_of = part_of_.emplace_back(tree_.back().front().size());
    for (std::size_t part = 0; part < tree_[level].size(); ++part) {
      for (const int one : tree_[level][part]) part_of[static_cast<std::size_t>(one)] = part;
    }
    if (level == 0) {
      in_order_.push_back(tree_.front());
      continue;
    }
    children_[level] = children_of(tree_, level);
    Parts& parts = in_order_.emplace_back();
    for (const std::vector<std::size_t>& children : children_[level]) {
      std::vector<int>& ranks = parts.emplace_back();
      for (const std::size_t child : children) {
        const std::vector<int>& more = in_order_[level - 1][child];
        ranks.insert(ranks.end(), more.begin(), more.end());
      }
    }
  }
}

std::size_t Router::broadcast_hops() const {
  const bool one_hop = tree_.size() == 2 && children_.back().front().size() == 2;
  return one_hop ? 1 : tree_.size();
}

void Router::add_gathered(const Holding& from, Route& route) const {
  deliver(top(), {from}, 0, route);
  if (has({0, part_of(0, from.rank)}, rank_)) route.gathers.pop_back();
}

void Router::add_broadcast(const Holding& root, Route& route) const { spread(top(), root, 0, route); }

std::vector<Router::Place> Router::within(Place place) const {
  std::vector<Place> places;
  for (const std::size_t part : children_[place.level][place.part]) places.push_back({place.level - 1, part});
  return places;
}

// Brings all ranks of a place what it has.
void Router::deliver(Place place, const Holdings& held, std::size_t hop, Route& route) const {
  if (!has(place, rank_)) return;
  if (place.level == 0) {
    route.gathers.push_back(held);
    return;
  }
  const std::vector<Place> children = within(place);
  for (std::size_t i = 0; i < children.size(); ++i) {
    Holdings own;
    std::ranges::copy_if(held, std::back_inserter(own),
                         [&](const Holding& one) { return has(children[i], one.rank); });
    if (own.empty()) continue;
    fork(own, {{}, place.level, i, children.size()}, hop, route);
    for (std::size_t other = 0; other < children.size(); ++other) {
      if (other != i) give(own, children[other], other, hop, hop + 1, route);
    }
    deliver(children[i], own, hop + 1, route);
  }
}

// Brings all ranks of a place what one of them has.
void Router::spread(Place place, const Holding& root, std::size_t hop, Route& route) const {
  if (place.level == 0) {
    if (has(place, rank_)) route.gathers.push_back({root});
    return;
  }
  std::vector<Place> others = within(place);
  const auto own = std::ranges::find_if(others, [&](const Place& child) { return has(child, root.rank); });
  const Place home = *own;
  others.erase(own);
  const std::size_t shares = others.empty() ? 1 : share_count(root.bytes, others.size());
  if (shares == 1) {
    fork({root}, {{}, place.level, 0, others.size() + 1}, hop, route);
    for (std::size_t i = 0; i < others.size(); ++i) give({root}, others[i], i + 1, hop, hop + 2, route);
  } else {
    const std::vector<ByteRange> ranges = cut(root.bytes, shares);
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const Holdings given = {{root.rank, ranges[i]}};
      fork(given, {{}, place.level, 0, 2}, hop, route);
      give(given, others[i], 1, hop, hop + 2, route);
      const Holdings held = shares_of(ranges[i], root.rank, others[i]);
      fork(held, {{}, place.level, i, others.size(), false}, hop + 1, route);
      for (std::size_t other = 0; other < others.size(); ++other) {
        if (other != i) give(held, others[other], other, hop + 1, hop + 2, route);
      }
    }
  }
  spread(home, root, hop + 1, route);
}

// Notes that what this member holds leaves it.
void Router::fork(const Holdings& held, RouteFork made, std::size_t hop, Route& route) const {
  const auto own = std::ranges::find(held, rank_, &Holding::rank);
  if (own == held.end()) return;
  made.bytes = own->bytes;
  route.forks[hop].push_back(made);
}

// Sends what is held to another place, and delivers it there from `next_hop` on.
void Router::give(const Holdings& held, Place to, std::size_t part, std::size_t hop, std::size_t next_hop,
                  Route& route) const {
  const bool sends = std::ranges::find(held, rank_, &Holding::rank) != held.end();
  if (!sends && !has(to, rank_)) return;
  const Holdings shares = shares_of(range_of(held), held.front().rank, to);
  for (auto from = held.begin(), share = shares.begin(); from != held.end();) {
    const std::size_t begin = std::max(from->bytes.offset, share->bytes.offset);
    const std::size_t end = std::min(end_of(from->bytes), end_of(share->bytes));
    if (from->rank == rank_ || share->rank == rank_)
      route.hops[hop].push_back({from->rank, share->rank, {begin, end - begin}, part});
    if (end_of(share->bytes) == end) ++share;
    if (end_of(from->bytes) == end) ++from;
  }
  deliver(to, shares, next_hop, route);
}

// Returns the shares of a place's ranks. A range that is too small for all goes to others for other sources.
Holdings Router::shares_of(ByteRange range, int source, Place place) const {
  const std::vector<int>& ranks = in_order_[place.level][place.part];
  const std::vector<ByteRange> ranges = cut(range, share_count(range, ranks.size()));
  const std::size_t first = static_cast<std::size_t>(source) % (ranks.size() - ranges.size() + 1);
  Holdings shares;
  for (std::size_t i = 0; i < ranges.size(); ++i) shares.push_back({ranks[first + i], ranges[i]});
  return shares;
}

}  // namespace roundelay::collective::levels
