// How an allreduce over two levels is cut, and in which order its steps are taken. Pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "collective/fabric.h"

namespace roundelay::collective::two_level {

// A member's part of a chunk, and how many of them may be on the wire at once. Over TCP the handshake of an
// MPI message waits behind the bytes that are queued already, so there must be much in flight, yet little of
// it in the last chunk: at 1 Gbit/s 8 of 256 KiB took 1.08 of a plain stream's time, 3 of 512 KiB 1.14 (2
// nodes x 2 ranks, 25 MiB, python -m benchmarks.two_nodes).
inline constexpr std::size_t kShardBytes = 256 << 10;
inline constexpr std::uint64_t kMostAcross = 8;

struct Range {
  std::size_t offset = 0, bytes = 0;
};

// Chunks of a shard for each of the node's members; the last one is shared evenly, too.
class Chunks {
 public:
  Chunks(std::size_t bytes, std::size_t element, int members)
      : bytes_(bytes), element_(element), members_(static_cast<std::size_t>(members)) {}

  [[nodiscard]] std::uint64_t count() const { return (bytes_ + each() - 1) / each(); }
  [[nodiscard]] Range operator[](std::uint64_t chunk) const {
    const std::size_t offset = static_cast<std::size_t>(chunk) * each();
    return {offset, std::min(each(), bytes_ - offset)};
  }
  // By member, in bytes; perhaps 0.
  [[nodiscard]] std::vector<std::size_t> shards(std::uint64_t chunk) const {
    const std::size_t count = (*this)[chunk].bytes / element_;
    std::vector<std::size_t> shards(members_);
    for (std::size_t i = 0; i < members_; ++i) {
      shards[i] = (count / members_ + (i < count % members_ ? 1 : 0)) * element_;
    }
    return shards;
  }

 private:
  [[nodiscard]] std::size_t each() const { return members_ * kShardBytes; }

  std::size_t bytes_, element_, members_;
};

// The steps inside the node, which all its members take in this order whatever comes back from the wire
// first: chunk c is gathered when c + kMostAcross + 1 have been scattered, so that one is ready when a place
// on the wire becomes free.
class Order {
 public:
  explicit Order(std::uint64_t chunks) : chunks_(chunks) {}

  [[nodiscard]] bool over() const { return gathered_ == chunks_; }
  [[nodiscard]] bool scatters_next() const {
    return scattered_ < chunks_ && scattered_ <= gathered_ + kMostAcross;
  }
  // The chunk of the next step.
  [[nodiscard]] std::uint64_t next() const { return scatters_next() ? scattered_ : gathered_; }
  void take() { ++(scatters_next() ? scattered_ : gathered_); }

 private:
  std::uint64_t chunks_, scattered_ = 0, gathered_ = 0;
};

// What is done with the parts inside the node, and what with the nodes' sums.
struct Scales {
  Scale inside, between;
};

// An average of equal parts is that part again only if each level divides what it has added up. What makes
// smaller is done inside, too: a half's partial sum then overflows no sooner than the result.
inline Scales split(const Call& call, int members) {
  Scales scales{{}, call.scale};
  if (call.reduce_op != ReduceOp::kSum) return scales;
  if (call.scale.divisor % members == 0) {
    scales.inside.divisor = members;
    scales.between.divisor /= members;
  }
  if (std::abs(call.scale.factor) < 1) std::swap(scales.inside.factor, scales.between.factor);
  return scales;
}

// Integers are truncated once, after a sum that is wider than they are: not to be done in parts.
inline bool fits(const Call& call) {
  return call.operation == Operation::kAllreduce && call.reduce_op != ReduceOp::kAdasum &&
         call.absent.empty() && (is_floating(call.dtype) || call.scale.identity());
}

}  // namespace roundelay::collective::two_level
