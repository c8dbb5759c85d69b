// Plans one run of topk: which elements of the bucket are this rank's shard, and how many of them go. The
// host makes the plan without the gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compress/chunk_map.h"
#include "compress/shards.h"
#include "compress/technique.h"
#include "compress/top_k/message.h"
#include "kernels/top_k.h"

namespace roundelay::compress::top_k {

struct Options {
  std::uint64_t before = 0;  // lossy elements of the pool's buckets before this one
  std::vector<std::uint32_t> dense;
  std::uint64_t share = 0;  // of the elements that are sent (quota.h)
  kernels::LocalMomentum momentum;
  std::optional<DType> wire;  // of fp32 elements; none: as they are
  kernels::TopKRule rule;
  bool short_indices = false;
};

struct Plan {
  DType dtype, wire;
  Slice shard;               // in the bucket
  std::vector<Slice> dense;  // the elements of the shard that go densely; counted from the shard's first
  std::size_t dense_count;   // elements of these
  std::size_t lossy;         // the other elements that users see
  std::size_t first;         // the first lossy element, counted from the shard's first
  std::size_t chosen;        // the number of lossy elements to send
  bool in_place;             // the whole bucket goes densely, where it lies
  IndexCode code;
  MessageLayout message;

  // Returns whether the shard has something to send.
  [[nodiscard]] bool sends() const { return lossy + dense_count > 0; }
};

// `run`: as in Bucket.
[[nodiscard]] Plan plan_of(const Options& options, const BucketShape& shape, Place place, std::uint64_t run);

}  // namespace roundelay::compress::top_k
