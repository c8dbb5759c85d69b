#include "compress/top_k/plan.h"

#include <algorithm>

#include "compress/quota.h"

namespace roundelay::compress::top_k {
namespace {

// Returns the part of a slice that lies in the shard, counted from the shard's first element.
Slice within(const Slice& shard, const Slice& slice) {
  const std::size_t first = std::max(shard.first, slice.first);
  const std::size_t end = std::min(shard.first + shard.count, slice.first + slice.count);
  return first < end ? Slice{first - shard.first, end - first} : Slice{};
}

// The lossy elements of a bucket: those before a shard, and those in it.
struct Lossy {
  std::size_t before = 0, within = 0, first = 0;
};

Lossy lossy_of(const ChunkMap& map, const Slice& shard) {
  Lossy lossy;
  map.each_row([&](std::size_t first, std::size_t count) {
    if (first < shard.first) lossy.before += std::min(count, shard.first - first);
    const Slice part = top_k::within(shard, {first, count});
    if (lossy.within == 0 && part.count > 0) lossy.first = part.first;
    lossy.within += part.count;
  });
  return lossy;
}

}  // namespace

RunPlan plan_of(const Options& options, const BucketShape& shape, Place place, std::uint64_t run) {
  const ChunkMap map(shape.count, shape.parameters, 1, options.dense);
  const DType wire_type =
      shape.dtype == DType::kFloat32 ? options.wire_type.value_or(shape.dtype) : shape.dtype;
  const Slice shard = shard_of(shape.count, place);
  std::vector<Slice> dense;
  std::size_t dense_count = 0;
  map.each_dense([&](const Slice& slice) {
    const Slice part = within(shard, slice);
    if (part.count > 0) dense.push_back(part);
    dense_count += part.count;
  });
  const Lossy lossy = lossy_of(map, shard);
  const std::size_t chosen = quota(options.share, options.before + lossy.before, lossy.within, run);
  const MessageLayout message(dense_count, wire_type, {shard.count, chosen, options.short_indices});
  // Momentum would change what goes densely, and another wire type needs a message.
  const bool in_place =
      options.share == share_of(1) && options.momentum.factor == 0 && wire_type == shape.dtype;
  return {shape.dtype,  wire_type,   shard,  std::move(dense), dense_count,
          lossy.within, lossy.first, chosen, in_place,         message};
}

}  // namespace roundelay::compress::top_k
