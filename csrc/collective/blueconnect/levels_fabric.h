// The data plane of a group on several levels: nodes, racks and so on. An allreduce goes as in BlueConnect
// (Cho et al., MLSys 2019): stages scatter it further and further, from the inside out, the last one reduces
// what a member then has, and the stages gather it again. Each stage has fabrics of its own. The buffer is
// cut into chunks, and the stages work on different chunks at once.
//
// With two levels each of m nodes sends 2 (m-1)/m S bytes for an allreduce of S bytes. The fabric's regions
// and counters are those of the first stage, which works in place in a region.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collective/blueconnect/cost.h"
#include "collective/blueconnect/member_plan.h"
#include "collective/fabric.h"

namespace roundelay::collective {

// How calls are cut. The same on all members. Over TCP the handshake of an MPI message waits for the bytes
// that are queued before it, so that many bytes must be on their way, but few of them in the last chunk: at 1
// Gbit/s 8 shards of 256 KiB took 1.08 of a plain stream's time, 3 of 512 KiB took 1.14 (2 nodes x 2 ranks,
// 25 MiB, python -m benchmarks.two_nodes).
struct LevelsCut {
  std::size_t shard_bytes = blueconnect::kShardBytes;  // what a member reduces in the last stage at a time
  std::uint64_t most_across = 8;  // how many calls a stage between nodes has in progress at once
};

// The fabrics of one stage.
struct StageFabrics {
  std::vector<std::unique_ptr<Fabric>> of_groups;  // those of MemberStage::groups
  bool in_node = false;
};

struct LevelsParts {
  blueconnect::MemberPlan plan;      // of one stage or more
  std::vector<StageFabrics> stages;  // those of the plan
  std::unique_ptr<Fabric> flat;      // connects all; takes the operations that gain nothing from levels
};

// Makes the fabric. Between nodes partial sums travel in the buffer's type: a float is rounded once for each
// stage. Averages divide as early as they can, so that equal parts come back unchanged and halves do not
// overflow (blueconnect/schedule.h). Whether a call goes over the stages depends on its operation and not on
// its bytes, so that sums do not depend on them either.
std::unique_ptr<Fabric> make_levels_fabric(LevelsParts parts, LevelsCut cut = {});

}  // namespace roundelay::collective
