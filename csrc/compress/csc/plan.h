// What one run of csc does. The host knows it without the norms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "compress/csc/chunk_map.h"
#include "compress/technique.h"

namespace roundelay::compress::csc {

struct Options {
  std::uint64_t before = 0;  // chunks of the pool's buckets before this one
  std::size_t chunk = 1;     // elements
  std::vector<std::uint32_t> dense;
  std::uint64_t share = 0;  // of the chunks that are sent (quota.h)
  kernels::LocalMomentum momentum;
  bool by_last_norms = false;
  std::optional<DType> wire;  // of fp32 elements; none: as they are
};

// When the ranks agree on the norms of a run.
enum class Agreement : std::uint8_t {
  kNever,   // no run needs them
  kBefore,  // before the chunks go, as they choose them
  kWith,    // in the message, for the next run
  kAfter    // after the message, as it has another type, or there is none
};

struct Plan {
  Chunking chunking;
  DType dtype, wire;
  std::size_t chosen;  // chunks to send
  bool in_place;       // all chunks go, where they lie, and there is no message
  bool by_last;        // the norms of the last run choose
  Agreement agreement;
  // The message has norms, dense elements and chunks, in elements of `wire`.
  std::size_t dense_at, chunks_at;
  std::size_t room;   // of whole chunks
  std::size_t sent;   // the last chunk may be short: it is the last one of the message
  std::size_t first;  // an element of the bucket that users see
};

// `run`: as in Bucket.
[[nodiscard]] Plan plan_of(const Options& options, const BucketShape& shape, std::uint64_t run);
// Returns how many chunks that run sends.
[[nodiscard]] std::size_t chosen_in(const Options& options, const BucketShape& shape, std::uint64_t run);

[[nodiscard]] inline ChunkMap map_of(const Options& options, const BucketShape& shape) {
  return {shape.count, shape.parameters, options.chunk, options.dense};
}

}  // namespace roundelay::compress::csc
