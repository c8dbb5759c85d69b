// Cuts an allreduce into chunks and orders the steps of its stages. Pure.
//
// A chunk goes down the stages, of which each reduce-scatters it; the last stage allreduces it; then it goes
// up again, and each stage all-gathers what it has scattered. All stages work at the same time, on different
// chunks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "collective/call.h"
#include "collective/levels/member_plan.h"

namespace roundelay::collective::levels {

// The default of the bytes of a chunk that a member has in the last stage. With larger shards the last stage
// might take another algorithm, and so another order of sums, for more than 64 parts
// (collective/tuning/select.h).
inline constexpr std::size_t kShardBytes = 256 << 10;
// The most of them in a long call, if no other algorithm comes of it. The members of a node meet several
// times a chunk, and each meeting costs them processor time.
inline constexpr std::size_t kLongShardBytes = 1 << 20;

// Cuts a buffer into chunks, and each chunk, also a shorter last one, into the plan's units. Units have whole
// elements, and as equal numbers of them as possible.
class Chunks {
 public:
  // `bytes`, `element` and `chunk_bytes` are sizes of the buffer, of an element and of a chunk, in bytes.
  // `units` is the number of units in a chunk.
  Chunks(std::size_t bytes, std::size_t element, std::size_t chunk_bytes, std::size_t units)
      : bytes_(bytes), element_(element), each_(chunk_bytes), units_(units) {}

  [[nodiscard]] std::uint64_t count() const { return (bytes_ + each_ - 1) / each_; }
  [[nodiscard]] ByteRange operator[](std::uint64_t chunk) const {
    const std::size_t offset = static_cast<std::size_t>(chunk) * each_;
    return {offset, std::min(each_, bytes_ - offset)};
  }
  // Returns the bytes of some units of a chunk. There may be none.
  [[nodiscard]] ByteRange bytes_of(std::uint64_t chunk, const ElementRange& units) const {
    const ByteRange whole = (*this)[chunk];
    const std::size_t begin = before(whole, units.begin), end = before(whole, units.begin + units.count);
    return {whole.offset + begin, end - begin};
  }

 private:
  [[nodiscard]] std::size_t before(const ByteRange& chunk, std::size_t unit) const {
    return chunk.bytes / element_ * unit / units_ * element_;
  }

  std::size_t bytes_, element_, each_, units_;
};

// Returns how many bytes of a chunk a member has in the last stage, in a call of `bytes` bytes: `least`, and
// in a long call up to `most`. A long call still has many chunks, because the links wait for the nodes' sums
// of the first one, and nothing hides the last.
inline std::size_t shard_bytes_of(const MemberPlan& plan, std::size_t bytes, std::size_t least,
                                  std::size_t most) {
  constexpr std::size_t kChunks = 16;
  const std::size_t range = bytes / plan.units * plan.last_range;  // of the call, in the last stage
  return std::clamp(range / kChunks, least, std::max(least, most));
}

// Returns the size of a chunk of which the last stage's largest range has `shard_bytes` bytes: a multiple of
// every element's size, and of units of whole cache lines where a chunk has room for them.
inline std::size_t chunk_bytes_of(const MemberPlan& plan, std::size_t shard_bytes) {
  constexpr std::size_t kLine = 64, kElement = 8;
  const std::size_t bytes = shard_bytes * plan.units / plan.last_range;
  const std::size_t even = bytes >= plan.units * kLine ? plan.units * kLine : kElement;
  return std::max(bytes - bytes % even, kElement);
}

// The order in which one stage begins its steps. It is the same on all its members, whichever chunk comes
// back first from the stages further out. The stage gathers chunk c when it has begun to scatter c +
// lookahead + 1 chunks (or all): so the stages further out have work meanwhile. `lookahead` must not grow
// from a stage to the next one further out, or both would wait for each other.
class StepOrder {
 public:
  StepOrder(std::uint64_t chunks, std::uint64_t lookahead) : chunks_(chunks), lookahead_(lookahead) {}

  [[nodiscard]] bool over() const { return gathered_ == chunks_; }
  // Returns whether the next step scatters; otherwise it gathers.
  [[nodiscard]] bool scatters_next() const {
    return scattered_ < chunks_ && scattered_ <= gathered_ + lookahead_;
  }
  // Returns the chunk of the next step.
  [[nodiscard]] std::uint64_t next() const { return scatters_next() ? scattered_ : gathered_; }
  // Marks the next step as begun.
  void advance() { ++(scatters_next() ? scattered_ : gathered_); }

 private:
  std::uint64_t chunks_, lookahead_, scattered_ = 0, gathered_ = 0;
};

// Splits a call's scale among the stages. Each stage divides by the number of values that it has added, so
// that the average of equal values is that value, and partial sums of fp16 overflow no sooner than the
// result. The first stage with groups of different sizes divides by all that is left. The last stage applies
// the factor.
inline std::vector<Scale> split(const Reduction& how, const MemberPlan& plan) {
  std::vector<Scale> scales(plan.stages.size());
  Scale left = how.scale;
  for (std::size_t i = 0; i + 1 < scales.size() && how.reduce_op == ReduceOp::kSum; ++i) {
    const MemberStage& stage = plan.stages[i];
    std::int64_t share = stage.even ? stage.members : left.divisor;
    if (left.divisor % share != 0) share = 1;
    scales[i].divisor = share;
    left.divisor /= share;
  }
  scales.back() = left;
  return scales;
}

// Returns whether levels can carry out the call, an allreduce or a reducescatter. Scaled integers do not fit:
// they are truncated once, after a sum that is wider than they are.
inline bool fits(const Call& call) {
  const auto reduces = [](const CallOptions& options, const Reduction& how) {
    return how.reduce_op != ReduceOp::kAdasum && options.absent.empty() &&
           (is_floating(how.dtype) || how.scale.identity());
  };
  if (const auto* const allreduce = std::get_if<AllreduceCall>(&call)) return reduces(*allreduce, *allreduce);
  const auto* const scatter = std::get_if<ReducescatterCall>(&call);
  return scatter != nullptr && reduces(*scatter, *scatter);
}

}  // namespace roundelay::collective::levels
