// Divides a bucket among the ranks of a node: each takes a shard of the sums over the node. If nodes have
// different numbers of ranks, those ranks take one whose place is on every node.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "compress/technique.h"

namespace roundelay::compress {

// Returns this rank's place; that of the only member if the workspace has no fabric within a node.
[[nodiscard]] inline Place place_in(Workspace& workspace) {
  collective::Fabric* const node = workspace.node();
  const bool even = workspace.fabric().capabilities().uneven.empty();
  if (node == nullptr) return {.even = even};
  const int shards = collective::level_sizes(workspace.fabric()).front();
  return {node->group().index, shards, node->group().size(), even};
}

// The scale of the sums inside a node, and that of the sums between the nodes.
struct LevelScales {
  Scale inside, between;
};

// Splits a reduction's scale. Each level divides what it has added up, so that an average of equal parts is
// that part again, and a half's partial sum overflows no sooner than the result. Nodes of different sizes
// divide by all ranks at once. A factor scales the whole sum. Equal on all ranks.
[[nodiscard]] inline LevelScales scales_of(const Scale& scale, const Place& place) {
  LevelScales scales{{}, scale};
  const std::int64_t share = place.even ? place.members : scale.divisor;
  if (scale.divisor % share == 0) {
    scales.inside.divisor = share;
    scales.between.divisor /= share;
  }
  return scales;
}

// Returns the most elements that a shard has, of a bucket with `count` elements.
[[nodiscard]] inline std::size_t shard_capacity(std::size_t count, int shards) {
  const auto each = static_cast<std::size_t>(shards);
  return (count + each - 1) / each;
}

// Returns the elements that the rank at `place` adds up and sends. Some of the last shards may be shorter, or
// empty, as are those of places that have none.
[[nodiscard]] inline Slice shard_of(std::size_t count, Place place) {
  const std::size_t each = shard_capacity(count, place.shards);
  const std::size_t first = std::min(count, static_cast<std::size_t>(place.index) * each);
  return {first, std::min(each, count - first)};
}

// Returns the bytes of the shard of each rank of the node.
[[nodiscard]] inline std::vector<std::size_t> shard_sizes(const Bucket& bucket, Place place) {
  std::vector<std::size_t> bytes;
  bytes.reserve(static_cast<std::size_t>(place.members));
  for (int index = 0; index < place.members; ++index)
    bytes.push_back(shard_of(bucket.count, {index, place.shards}).count * size_of(bucket.reduction.dtype));
  return bytes;
}

// Makes the call of a node's fabric that sums the bucket in place, each rank its shard. `scale` is that of
// the sums.
[[nodiscard]] inline collective::ReducescatterCall scatter_in_node(const Bucket& bucket,
                                                                   const Workspace& workspace, Place place,
                                                                   Scale scale) {
  collective::ReducescatterCall call;
  call.shard_bytes = shard_sizes(bucket, place);
  const std::size_t size = size_of(bucket.reduction.dtype);
  const Slice own = shard_of(bucket.count, place);
  call.dtype = bucket.reduction.dtype;
  call.scale = scale;
  call.stream = workspace.stream();
  call.input = bucket.buffer.data();
  call.output = {bucket.buffer.data() + own.first * size, own.count * size};
  call.region = bucket.buffer.region;
  return call;
}

// Makes the call of a node's fabric that gives each rank the shards of all, where they lie.
[[nodiscard]] inline collective::AllgatherCall gather_in_node(const Bucket& bucket,
                                                              const Workspace& workspace, Place place) {
  collective::AllgatherCall call;
  const std::size_t size = size_of(bucket.reduction.dtype);
  call.input = bucket.buffer.data() + shard_of(bucket.count, place).first * size;
  call.output = {bucket.buffer.data(), bucket.buffer.bytes};
  call.receive_bytes = shard_sizes(bucket, place);
  call.stream = workspace.stream();
  call.region = bucket.buffer.region;
  return call;
}

}  // namespace roundelay::compress
