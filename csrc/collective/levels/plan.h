// The stages of an allreduce over any number of levels, as in BlueConnect (Cho et al., MLSys 2019). Pure.
//
// On the way *down* each stage reduce-scatters between the parts of one level, and the ranges that a rank
// works on shrink. On the way *up* the same groups all-gather, in reverse order. If parts have different
// numbers of ranks, they cut the buffer at different places, and a stage has a group for each range between
// two neighbouring cuts. If all parts are equal, the stages are those of the paper: a rank is in one group of
// each stage.
#pragma once

#include <cstddef>
#include <vector>

namespace roundelay::collective::levels {

// The ranks of each part of one level. Each rank is in one part.
using Parts = std::vector<std::vector<int>>;

// The levels, innermost first. Each part lies within one part of the next level; the last level has one part,
// all ranks from 0 on.
using Tree = std::vector<Parts>;

// Returns the tree of consecutive ranks with `factors` parts in each part of the next level, innermost first:
// {4, 2} are 2 nodes with 4 ranks each.
Tree tree_of_factors(const std::vector<int>& factors);

// Returns the tree with one level more, below `level`. The new level joins, inside each part of `level`,
// `factor` parts of the level below (ranks, below level 0) at a time, and at last those that remain.
Tree split_level(const Tree& tree, std::size_t level, std::size_t factor);

// Returns, for each part of `level`, the indices of the parts of the level below in it (below level 0: the
// ranks), ascending.
std::vector<std::vector<std::size_t>> children_of(const Tree& tree, std::size_t level);

struct ElementRange {
  std::size_t begin = 0;
  std::size_t count = 0;
  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

// Ranks that have partial sums of one range: one rank of each part that is joined. On the way down member i
// gets the sum of shards[i] over all members; on the way up it sends that shard to all. The shards lie side
// by side in the range and may be empty.
struct StageGroup {
  std::vector<int> ranks;
  ElementRange range;
  std::vector<ElementRange> shards;  // one for each member
};

// The groups of one level. They work independently of each other.
struct Stage {
  std::size_t level = 0;  // the level of the tree
  std::vector<StageGroup> groups;
};

// Returns the stages for `elements` elements, innermost first, which is the way down. A level that joins
// nothing has no stage. After the last stage each element's sum is on one rank.
std::vector<Stage> plan(const Tree& tree, std::size_t elements);

}  // namespace roundelay::collective::levels
