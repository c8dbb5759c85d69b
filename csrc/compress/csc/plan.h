// Plans one run of csc. The host makes the plan without the norms. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "compress/chunk_map.h"
#include "compress/technique.h"

namespace roundelay::compress::csc {

struct Options {
  std::uint64_t before = 0;          // the number of chunks in the pool's buckets before this one
  std::size_t chunk = 1;             // elements of a chunk
  std::vector<std::uint32_t> dense;  // indices of the bucket's parameters that go densely, ascending
  std::uint64_t share = 0;           // the share of the chunks to send, in units of 2^-32 (quota.h)
  kernels::LocalMomentum momentum;
  bool masking = true;             // the momentum becomes zero where it was sent
  bool by_last_norms = false;      // the norms of the last run choose the chunks
  std::optional<DType> wire_type;  // the type in which fp32 elements travel; none: their own
};

// The time at which the ranks agree on the norms of a run that is not in place. They always do: a norm that
// is not finite tells all ranks of an overflow on one.
enum class Agreement : std::uint8_t {
  kBefore,  // the norms travel before the chunks, because they choose the chunks
  kWith,    // they travel in the message
  kAfter    // they travel after the message, because it has another type, or there is none
};

struct RunPlan {
  Chunking chunking;
  DType dtype, wire_type;
  std::size_t chosen;   // the number of chunks to send
  bool in_place;        // all chunks go, where they lie, and there is no message
  bool by_last;         // the norms of the last run choose
  Agreement agreement;  // has no meaning for a run in place
  // The message has norms (if they go with it), dense elements and chunks. The dense elements and the chunks
  // begin here, in elements of `wire_type`.
  std::size_t dense_at, chunks_at;
  std::size_t room;   // elements of the message's memory, which has room for whole chunks
  std::size_t sent;   // elements of the message that travel: its last chunk may be short
  std::size_t first;  // an element of the bucket that users see
};

// Returns the plan of run number `run` (Bucket::run) of a bucket with this shape.
[[nodiscard]] RunPlan plan_of(const Options& options, const BucketShape& shape, std::uint64_t run);
// Returns how many chunks that run sends.
[[nodiscard]] std::size_t chosen_in(const Options& options, const BucketShape& shape, std::uint64_t run);

// Returns the chunks of a bucket with this number of elements. None is larger than the bucket.
[[nodiscard]] inline Chunking chunking_of(const Options& options, std::size_t count) {
  return {count, std::min(options.chunk, std::max<std::size_t>(1, count))};
}
[[nodiscard]] inline ChunkMap map_of(const Options& options, const BucketShape& shape) {
  return {shape.count, shape.parameters, chunking_of(options, shape.count).chunk, options.dense};
}

}  // namespace roundelay::compress::csc
