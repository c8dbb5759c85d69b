// The arithmetic on one shard in host memory: what it keeps, chooses and sends, and the sum over the nodes.
#pragma once

#include <cstddef>
#include <span>

#include "compress/technique.h"
#include "compress/top_k/plan.h"

namespace roundelay::compress::top_k {

// One run of one rank. All that it uses outlives it. Errors: those of Stage::scratch().
class Shard {
 public:
  Shard(const Options& options, const Plan& plan, Stage& stage, const Bucket& bucket)
      : options_(options), plan_(plan), stage_(stage), bucket_(bucket) {}

  // Takes the shard's sums over the node into the residual, and the chosen ones with the dense elements into
  // the message. The shard is zero then.
  [[nodiscard]] Status fill(std::byte* message) const;
  // Sets the shard to the sum of the messages, which lie side by side, from the first to the last. A NaN
  // shows that a residual had an overflow. Errors besides: kInternal (a message is none).
  [[nodiscard]] Status sum(const std::byte* messages, std::size_t count, Scale scale) const;

 private:
  struct Chosen {
    std::span<std::int64_t> indices;
    std::byte* values;  // of the residual's type
  };
  [[nodiscard]] std::byte* values() const {
    return bucket_.buffer.data() + plan_.shard.first * size_of(plan_.dtype);
  }
  [[nodiscard]] kernels::Kept kept() const;
  void take_dense(std::byte* to) const;
  [[nodiscard]] Result<Chosen> choose() const;
  void add(std::byte* sums, std::span<const std::uint32_t> indices, const std::byte* values) const;

  const Options& options_;
  const Plan& plan_;
  Stage& stage_;
  const Bucket& bucket_;
};

}  // namespace roundelay::compress::top_k
