// The arithmetic of topk on one shard: it adds to the residual, chooses the elements to send, and adds up the
// messages of all nodes.
#pragma once

#include <cstddef>
#include <span>

#include "compress/technique.h"
#include "compress/top_k/plan.h"

namespace roundelay::compress::top_k {

// One run on one rank. The constructor's arguments outlive it. Call fill(), then sum(). Errors: those of
// Workspace::scratch() and of Arithmetic.
class Shard {
 public:
  Shard(const Options& options, const RunPlan& plan, Workspace& workspace, const Bucket& bucket)
      : options_(options), plan_(plan), workspace_(workspace), bucket_(bucket) {}

  // Precondition: the shard has the sums over the node. Adds them to the residual, moves the largest elements
  // of the residual and the dense elements into the message, and clears the shard.
  [[nodiscard]] Status fill(std::byte* message) const;
  // Sets the shard to `scale` times the sum of `count` messages, which lie side by side, added from the first
  // to the last. It has NaN if a residual had an overflow.
  [[nodiscard]] Status sum(std::byte* messages, std::size_t count, Scale scale) const;

 private:
  // Sums in the residual's type.
  struct Sums {
    std::byte* shard;  // the shard's sums; the values' own memory, if these have the type
    std::byte* dense;  // the dense elements' sums, side by side
    std::byte* wide;   // room for the dense elements of a message
  };
  [[nodiscard]] std::byte* values() const {
    return bucket_.buffer.data() + plan_.shard.first * size_of(plan_.dtype);
  }
  [[nodiscard]] DType type() const { return kernels::residual_type(plan_.dtype); }
  [[nodiscard]] kernels::ResidualState kept() const;
  [[nodiscard]] Result<std::byte*> zeros(std::size_t count) const;
  [[nodiscard]] Status take_dense(std::byte* to) const;
  [[nodiscard]] Status accumulate(float* overflow) const;
  [[nodiscard]] Result<std::span<std::int64_t>> choose() const;
  [[nodiscard]] Result<Sums> begin_sums() const;
  [[nodiscard]] Status add(std::byte* message, const Sums& sums) const;
  [[nodiscard]] Status put_dense(const Sums& sums) const;

  const Options& options_;
  const RunPlan& plan_;
  Workspace& workspace_;
  const Bucket& bucket_;
};

}  // namespace roundelay::compress::top_k
