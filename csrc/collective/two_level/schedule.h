// Cuts an allreduce over two levels into chunks, and orders its steps. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/call.h"

namespace roundelay::collective::two_level {

// Cuts the bytes into chunks, and each chunk into a shard for each member of the node. The last chunk is
// shared evenly, too.
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
  // Returns the size of each member's shard, in bytes; may be 0.
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

// The order of the steps inside the node. It is the same on all its members, whatever comes back from the
// other nodes first. Chunk c is gathered when c + most_across + 1 chunks have been scattered, so that one is
// ready when one of the allreduces between the nodes ends.
class StepOrder {
 public:
  StepOrder(std::uint64_t chunks, std::uint64_t most_across) : chunks_(chunks), most_across_(most_across) {}

  [[nodiscard]] bool over() const { return gathered_ == chunks_; }
  // Returns whether the next step is a reduce-scatter; otherwise it is an all-gather.
  [[nodiscard]] bool scatters_next() const {
    return scattered_ < chunks_ && scattered_ <= gathered_ + most_across_;
  }
  // Returns the chunk of the next step.
  [[nodiscard]] std::uint64_t next() const { return scatters_next() ? scattered_ : gathered_; }
  // Marks the next step as done.
  void take() { ++(scatters_next() ? scattered_ : gathered_); }

 private:
  std::uint64_t chunks_, most_across_, scattered_ = 0, gathered_ = 0;
};

// Returns whether two levels can carry out the call. Scaled integers do not fit: they are truncated once,
// after a sum that is wider than they are.
inline bool fits(const Call& call) {
  const auto* const allreduce = std::get_if<AllreduceCall>(&call);
  return allreduce != nullptr && allreduce->reduce_op != ReduceOp::kAdasum && allreduce->absent.empty() &&
         (is_floating(allreduce->dtype) || allreduce->scale.identity());
}

}  // namespace roundelay::collective::two_level
