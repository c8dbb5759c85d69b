// Plans one run of topk: finds this rank's shard of the bucket, and the number of its elements to send. The
// elements of some parameters go densely, all of them. The others are *lossy*: only the chosen ones are sent.
// The host makes the plan, and needs no gradients for it.
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

// The technique's parameters, the same on all ranks.
struct Options {
  std::uint64_t before = 0;          // the number of lossy elements in the pool's buckets before this one
  std::vector<std::uint32_t> dense;  // indices of the bucket's parameters that go densely
  std::uint64_t share = 0;           // the share of lossy elements to send, in units of 2^-32 (quota.h)
  kernels::LocalMomentum momentum;
  bool masking = true;             // the momentum becomes zero where it was sent
  std::optional<DType> wire_type;  // the type in which fp32 elements travel; none: their own
  kernels::TopKRule rule;
  bool short_indices = false;  // the short form of indices (message.h)
};

struct RunPlan {
  DType dtype, wire_type;    // the types of the bucket's elements, and of those in messages
  Slice shard;               // this rank's elements in the bucket
  std::vector<Slice> dense;  // the shard's elements that go densely; first: counted from the shard's first
  std::size_t dense_count;   // the number of these
  std::size_t lossy;         // the number of the shard's lossy elements; padding is neither dense nor lossy
  std::size_t first;         // index of the first lossy element, counted from the shard's first
  std::size_t chosen;        // the number of lossy elements to send
  bool in_place;  // nothing goes into the residual and nothing is cast: a dense reduction does the same
  MessageLayout message;

  // Returns whether the shard has something to send.
  [[nodiscard]] bool sends() const { return lossy + dense_count > 0; }
};

// Returns the plan of the rank at `place` in its node for run number `run` (Bucket::run).
[[nodiscard]] RunPlan plan_of(const Options& options, const BucketShape& shape, Place place,
                              std::uint64_t run);

}  // namespace roundelay::compress::top_k
