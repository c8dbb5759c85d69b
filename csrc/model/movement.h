// The cost of operations that move bytes, or whose sums end on some ranks alone: over levels, where every
// byte enters each part of a level once (collective/levels/route.h), and flat. docs/fabrics.md describes
// both. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "model/cluster.h"
#include "model/stage.h"

namespace roundelay::model {

// kReduce is a reducescatter whose only shard is one rank's.
enum class Movement : unsigned char { kAllgather, kReducescatter, kBroadcast, kReduce };

// Returns the operation of this name: "allgather", "reducescatter", "broadcast", "reduce"; nothing: there is
// none.
std::optional<Movement> movement_named(std::string_view name);

// Returns the operation's stages, in as many chunks as the fabric cuts it into. `bytes` is the size of the
// whole vector S: of an allgather's result, of the others' input. Ranks have equal parts of it.
//
// A level joins p parts of r ranks in groups of g; if parts differ, those with the largest r / g count.
// Each part's end of the link sends, or gets:
//   allgather, reducescatter   (p - 1) r / g S, which is (p - 1) / p S if all parts are alike
//   broadcast, reduce          S at the root's part, and at the others what they share out beside it:
//                              (p - 2) / (p - 1) S in and out
// Each stage counts for its own level's link alone.
Program over_levels(const Cluster& cluster, Movement movement, double bytes);

// Returns the operation of all ranks as one group that knows nothing of levels, by the default algorithm. It
// counts as one stage on the outermost link. Ranks are numbered part by part. `root` is that of a broadcast
// and a reduce.
Program flat(const Cluster& cluster, Movement movement, double bytes, int root = 0);

}  // namespace roundelay::model
