// The arithmetic of topk on one shard in host memory: it adds to the residual, chooses the elements to send,
// and adds up the messages of all nodes.
#pragma once

#include <cstddef>
#include <span>

#include "compress/technique.h"
#include "compress/top_k/plan.h"

namespace roundelay::compress::top_k {

// One run on one rank. The constructor's arguments outlive it. Call fill(), then sum(). Errors: those of
// Stage::scratch().
class Shard {
 public:
  Shard(const Options& options, const Plan& plan, Stage& stage, const Bucket& bucket)
      : options_(options), plan_(plan), stage_(stage), bucket_(bucket) {}

  // Precondition: the shard has the sums over the node. Adds them to the residual, moves the largest elements
  // of the residual and the dense elements into the message, and clears the shard.
  [[nodiscard]] Status fill(std::byte* message) const;
  // Sets the shard to `scale` times the sum of `count` messages, which lie side by side, added from the first
  // to the last. It has NaN if a residual had an overflow. Further errors: kInternal (a message has a wrong
  // form).
  [[nodiscard]] Status sum(const std::byte* messages, std::size_t count, Scale scale) const;

 private:
  struct Chosen {
    std::span<std::int64_t> indices;
    std::byte* values;  // elements of the residual's type
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
