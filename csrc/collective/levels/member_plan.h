// A plan as one member sees it: its groups in each stage, and the ranges that it works on there. Pure.
//
// The plan cuts chunks of all sizes alike, so it counts in units: a chunk has `units` of them, whatever its
// size. The number is such that every stage cuts at whole units. So rounding never moves two cuts apart that
// should coincide, and the groups are the same for all chunks.
#pragma once

#include <cstddef>
#include <vector>

#include "collective/levels/plan.h"

namespace roundelay::collective::levels {

// The members of one group of a stage, by their numbers in the plan.
struct Members {
  std::vector<int> ranks;  // their values are added in this order
  int index = 0;           // this member's index in `ranks`

  [[nodiscard]] int size() const { return static_cast<int>(ranks.size()); }
  friend bool operator==(const Members&, const Members&) = default;
};

// A range on which this member works in one stage with one group.
struct Share {
  std::size_t group = 0;             // an index in MemberStage::groups
  ElementRange range;                // counts units, as do the shards
  std::vector<ElementRange> shards;  // one for each member of the group
};

struct MemberStage {
  std::size_t level = 0;  // the level of the tree
  // `members` is the size of the stage's largest group. `even`: all groups have this size, and so each member
  // is in one. Both are the same on all members.
  int members = 1;
  bool even = true;
  // The groups differ from each other. All members of the plan agree on their order. One of them may have
  // this member alone, if the stage joins its part with no other.
  std::vector<Members> groups;
  std::vector<Share> shares;  // ascending and apart
};

struct MemberPlan {
  std::size_t units = 1;
  // The units of the largest range that a group of the last stage reduces; the same on all members.
  std::size_t last_range = 1;
  std::vector<MemberStage> stages;  // innermost first

  // Returns whether this member has one group in each stage, of a size that is the same on all members.
  [[nodiscard]] bool even() const;
};

// Returns the plan of `tree` for member `rank`.
MemberPlan plan_of_member(const Tree& tree, int rank);

// Returns the plan of a member that has one group in each stage: `groups`, innermost first. All groups of a
// stage must have the same size.
MemberPlan even_plan(const std::vector<Members>& groups);

}  // namespace roundelay::collective::levels
