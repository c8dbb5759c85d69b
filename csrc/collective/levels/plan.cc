#include "collective/levels/plan.h"

#include <algorithm>
#include <utility>

namespace roundelay::collective::levels {
namespace {

// A range whose partial sum, over the ranks of one part, lies on one rank.
struct Held {
  ElementRange range;
  int rank = 0;
};

// The ranges that one part has cut the buffer into, side by side, none of them empty.
using Cut = std::vector<Held>;

std::size_t end_of(const ElementRange& range) { return range.begin + range.count; }

// Returns a range's shards, as even as they can be.
std::vector<ElementRange> shards_of(const ElementRange& range, std::size_t members) {
  std::vector<ElementRange> shards;
  shards.reserve(members);
  std::size_t begin = range.begin;
  for (std::size_t i = 0; i < members; ++i) {
    const std::size_t count = range.count / members + (i < range.count % members ? 1 : 0);
    shards.push_back({begin, count});
    begin += count;
  }
  return shards;
}

// Joins the parts' cuts: adds a group for each range between two places where any of them is cut, and returns
// the cut of the joint.
Cut join(const std::vector<Cut>& cuts, std::size_t elements, std::vector<StageGroup>& groups) {
  Cut joint;
  std::vector<std::size_t> next(cuts.size(), 0);  // of each cut, the range at `begin`
  for (std::size_t begin = 0; begin < elements;) {
    StageGroup group;
    std::size_t end = elements;
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      const Held& held = cuts[i][next[i]];
      group.ranks.push_back(held.rank);
      end = std::min(end, end_of(held.range));
    }
    group.range = {begin, end - begin};
    group.shards = shards_of(group.range, cuts.size());
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      if (group.shards[i].count > 0) joint.push_back({group.shards[i], group.ranks[i]});
      if (end_of(cuts[i][next[i]].range) == end) ++next[i];
    }
    groups.push_back(std::move(group));
    begin = end;
  }
  return joint;
}

// Returns the level below the innermost one: each rank is a part.
Parts singles(const Tree& tree) {
  Parts parts(tree.back().front().size());
  for (std::size_t rank = 0; rank < parts.size(); ++rank) parts[rank] = {static_cast<int>(rank)};
  return parts;
}

// Returns the parts of the level below.
Parts below_of(const Tree& tree, std::size_t level) { return level == 0 ? singles(tree) : tree[level - 1]; }

}  // namespace

std::vector<std::vector<std::size_t>> children_of(const Tree& tree, std::size_t level) {
  std::vector<std::size_t> part_of(tree.back().front().size());  // by rank
  for (std::size_t part = 0; part < tree[level].size(); ++part) {
    for (const int rank : tree[level][part]) part_of[static_cast<std::size_t>(rank)] = part;
  }
  const Parts below = below_of(tree, level);
  std::vector<std::vector<std::size_t>> indices(tree[level].size());
  for (std::size_t part = 0; part < below.size(); ++part) {
    indices[part_of[static_cast<std::size_t>(below[part].front())]].push_back(part);
  }
  return indices;
}

Tree tree_of_factors(const std::vector<int>& factors) {
  int ranks = 1;
  for (const int factor : factors) ranks *= factor;
  Tree tree;
  int each = 1;
  for (const int factor : factors) {
    each *= factor;
    Parts parts(static_cast<std::size_t>(ranks / each));
    for (int rank = 0; rank < ranks; ++rank) parts[static_cast<std::size_t>(rank / each)].push_back(rank);
    tree.push_back(std::move(parts));
  }
  return tree;
}

Tree split_level(const Tree& tree, std::size_t level, std::size_t factor) {
  const Parts below = below_of(tree, level);
  Parts joints;
  for (const std::vector<std::size_t>& members : children_of(tree, level)) {
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (i % factor == 0) joints.emplace_back();
      const std::vector<int>& ranks = below[members[i]];
      joints.back().insert(joints.back().end(), ranks.begin(), ranks.end());
    }
  }
  Tree split = tree;
  split.insert(split.begin() + static_cast<std::ptrdiff_t>(level), std::move(joints));
  return split;
}

std::vector<Stage> plan(const Tree& tree, std::size_t elements) {
  std::vector<Stage> stages;
  const std::size_t ranks = tree.back().front().size();
  std::vector<Cut> cuts;  // of each part of the level below
  cuts.reserve(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) cuts.push_back({{{0, elements}, static_cast<int>(rank)}});
  for (std::size_t level = 0; level < tree.size() && elements > 0; ++level) {
    Stage stage{level, {}};
    std::vector<Cut> joints;
    for (const std::vector<std::size_t>& members : children_of(tree, level)) {
      std::vector<Cut> joined;
      joined.reserve(members.size());
      for (const std::size_t member : members) joined.push_back(std::move(cuts[member]));
      joints.push_back(joined.size() == 1 ? std::move(joined.front()) : join(joined, elements, stage.groups));
    }
    cuts = std::move(joints);
    if (!stage.groups.empty()) stages.push_back(std::move(stage));
  }
  return stages;
}

}  // namespace roundelay::collective::levels
