// The fabric of a group on several levels: nodes, racks and so on. An allgather or a broadcast brings each
// byte into each node once (route.h). An allreduce goes as in BlueConnect (Cho et al., MLSys 2019). From the
// innermost stage outwards each stage reduce-scatters, so that a member has less and less of the buffer. The
// last stage allreduces that. Then the stages all-gather in reverse order. Each stage has fabrics of its own.
// The buffer is cut into chunks, and the stages work on different chunks at once.
//
// With two levels each of m nodes sends 2 (m-1)/m S bytes for an allreduce of S bytes. The fabric's regions
// and counters are those of the first stage's fabric, which works in place in a region.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collective/fabric.h"
#include "collective/levels/member_plan.h"
#include "collective/levels/schedule.h"

namespace roundelay::collective {

// The sizes into which calls are cut. They are the same on all members. Over TCP the handshake of an MPI
// message waits for the bytes that are queued before it, so several shards must be under way to keep the link
// busy, and small ones, because nothing hides the last. At 1 Gbit/s 8 shards of 256 KiB took 1.08 of a plain
// stream's time, 3 of 512 KiB took 1.14 (2 nodes x 2 ranks, 25 MiB, python -m benchmarks.two_nodes).
struct LevelsCut {
  std::size_t shard_bytes = levels::kShardBytes;  // bytes of one chunk that a member has in the last stage
  std::uint64_t most_across = 8;     // the most chunks that a stage between nodes has in progress at once
  std::size_t most_shard_bytes = 0;  // of a long allreduce (shard_bytes_of()); 0: no more than of others
};

// The fabrics of one stage on this member. Plans share those of stages that they have in common.
struct StageFabrics {
  std::vector<std::shared_ptr<Fabric>> of_groups;  // one for each of MemberStage::groups
  bool in_node = false;                            // all members of its groups are on one node
};

// A plan over levels, with the fabrics that carry it out.
struct LevelsPlan {
  levels::MemberPlan plan;           // has one stage at least
  std::vector<StageFabrics> stages;  // one for each of the plan's
  LevelsCut cut{};
};

struct LevelsParts {
  LevelsPlan main;
  std::unique_ptr<Fabric> flat;  // has all members, and takes operations that gain nothing from levels
  // The tree of the main plan, by indices in the group. Empty: only allreduces go over the levels.
  levels::Tree tree{};
  // Further plans, for calls that ask for them by their factors (CallOptions). They differ from each other
  // and from the main one between nodes, and share its fabrics inside them.
  std::vector<LevelsPlan> others{};
  // Nodes of different sizes: has the members of this member's place (places.h). Null: the nodes have equally
  // many members, or they do not share memory in one stage; then level_fabrics() has what the plan gives.
  std::shared_ptr<Fabric> peers{};
};

// Makes the fabric. Between nodes partial sums travel in the buffer's type: a float is rounded once for each
// stage. Averages divide as early as they can, so that equal parts come back unchanged and halves do not
// overflow (schedule.h). A call's operation decides whether it goes over the stages, and its size
// does not, so that sums do not depend on the size either.
std::unique_ptr<Fabric> make_levels_fabric(LevelsParts parts);

}  // namespace roundelay::collective
