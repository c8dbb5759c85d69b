// Divides a bucket among the ranks of a node: each takes a shard of the sums over the node.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "compress/technique.h"

namespace roundelay::compress {

// A rank's place among the ranks of its node.
struct Place {
  int index = 0, members = 1;
};

// Returns this rank's place; that of the only member if the workspace has no fabric within a node.
[[nodiscard]] inline Place place_in(Workspace& workspace) {
  collective::Fabric* const node = workspace.node();
  return node == nullptr ? Place{} : Place{node->group().index, node->group().size()};
}

// Returns the most elements that a shard has, of a bucket with `count` elements.
[[nodiscard]] inline std::size_t shard_capacity(std::size_t count, int members) {
  const auto each = static_cast<std::size_t>(members);
  return (count + each - 1) / each;
}

// Returns the elements that the rank at `place` adds up and sends. Some of the last shards may be shorter, or
// empty.
[[nodiscard]] inline Slice shard_of(std::size_t count, Place place) {
  const std::size_t each = shard_capacity(count, place.members);
  const std::size_t first = std::min(count, static_cast<std::size_t>(place.index) * each);
  return {first, std::min(each, count - first)};
}

// Makes the call of a node's fabric that sums the bucket in place, each rank its shard. `scale` is that of
// the sums.
[[nodiscard]] inline collective::ReducescatterCall scatter_in_node(const Bucket& bucket,
                                                                   const Workspace& workspace, Place place,
                                                                   Scale scale) {
  collective::ReducescatterCall call;
  const std::size_t size = size_of(bucket.reduction.dtype);
  for (int index = 0; index < place.members; ++index)
    call.shard_bytes.push_back(shard_of(bucket.count, {index, place.members}).count * size);
  const Slice own = shard_of(bucket.count, place);
  call.dtype = bucket.reduction.dtype;
  call.scale = scale;
  call.stream = workspace.stream();
  call.input = bucket.buffer.data();
  call.output = {bucket.buffer.data() + own.first * size, own.count * size};
  call.region = bucket.buffer.region;
  return call;
}

}  // namespace roundelay::compress
