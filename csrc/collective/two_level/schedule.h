// How an allreduce over two levels is cut, and in which order its steps are taken. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/call.h"

namespace roundelay::collective::two_level {

// Chunks of a shard for each of the node's members; the last one is shared evenly, too.
class Chunks {
 public:
  Chunks(std::size_t bytes, std::size_t element, int members, std::size_t shard_bytes)
      : bytes_(bytes),
        element_(element),
        members_(static_cast<std::size_t>(members)),
        each_(members_ * shard_bytes) {}

  [[nodiscard]] std::uint64_t count() const { return (bytes_ + each_ - 1) / each_; }
  [[nodiscard]] ByteRange operator[](std::uint64_t chunk) const {
    const std::size_t offset = static_cast<std::size_t>(chunk) * each_;
    return {offset, std::min(each_, bytes_ - offset)};
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
  std::size_t bytes_, element_, members_, each_;
};

// The steps inside the node, which all its members take in this order whatever comes back from the wire
// first: chunk c is gathered when c + most_across + 1 have been scattered, so that one is ready when a place
// on the wire becomes free.
class StepOrder {
 public:
  StepOrder(std::uint64_t chunks, std::uint64_t most_across) : chunks_(chunks), most_across_(most_across) {}

  [[nodiscard]] bool over() const { return gathered_ == chunks_; }
  [[nodiscard]] bool scatters_next() const {
    return scattered_ < chunks_ && scattered_ <= gathered_ + most_across_;
  }
  // The chunk of the next step.
  [[nodiscard]] std::uint64_t next() const { return scatters_next() ? scattered_ : gathered_; }
  void take() { ++(scatters_next() ? scattered_ : gathered_); }

 private:
  std::uint64_t chunks_, most_across_, scattered_ = 0, gathered_ = 0;
};

// What is done with the parts inside the node, and what with the nodes' sums.
struct Scales {
  Scale inside, between;
};

// An average of equal parts is that part again only if each level divides what it has added up; and a half's
// partial sum then overflows no sooner than the result. A factor is for the whole sum.
inline Scales split(const Reduction& how, int members) {
  Scales scales{{}, how.scale};
  if (how.reduce_op == ReduceOp::kSum && how.scale.divisor % members == 0) {
    scales.inside.divisor = members;
    scales.between.divisor /= members;
  }
  return scales;
}

// Integers are truncated once, after a sum that is wider than they are: not to be done in parts.
inline bool fits(const Call& call) {
  const auto* const allreduce = std::get_if<AllreduceCall>(&call);
  return allreduce != nullptr && allreduce->reduce_op != ReduceOp::kAdasum && allreduce->absent.empty() &&
         (is_floating(allreduce->dtype) || allreduce->scale.identity());
}

}  // namespace roundelay::collective::two_level
