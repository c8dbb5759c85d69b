// One run of quantised on one rank: what it sends, and the arithmetic between its calls.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "compress/quantised/parts.h"
#include "compress/shards.h"
#include "compress/technique.h"

namespace roundelay::compress::quantised {

// Call begin(); for each level between nodes, innermost first, send() and add(); finish(); for each level
// from the outside in, gather(); then take(). The constructor's arguments outlive it, and so do the calls
// that it returns. Errors: those of Workspace::scratch() and of Arithmetic.
//
// All arithmetic between two calls is done tile by tile, because memory is slower than these passes.
class Run {
 public:
  Run(Workspace& workspace, const Bucket& bucket);

  // Returns whether the shard has elements. Ranks without a shard only take part inside their node.
  [[nodiscard]] bool sends() const { return shard_.count > 0; }

  [[nodiscard]] Status begin();
  // Returns the exchange of the parts of what this rank has at a level. The first one moves the shard, which
  // has the sums over the node, into the residual.
  [[nodiscard]] Result<collective::AlltoallCall> send(std::size_t level);
  // Adds up what has come: this rank has the sums of its own part then.
  [[nodiscard]] Status add(std::size_t level);
  // Writes the sums into this rank's place among the messages of all.
  [[nodiscard]] Status finish();
  [[nodiscard]] collective::AllgatherCall gather(std::size_t level);
  // Sets the shard to the sums of all parts, scaled. Nothing stays of a block whose sums have overflowed.
  [[nodiscard]] Status take();

 private:
  // What a rank has at a level, its parts of it, and its own one.
  struct Level {
    collective::Fabric* fabric = nullptr;
    Slice whole;
    std::vector<Slice> parts;
    std::byte* received = nullptr;  // the own part from each other member, side by side

    [[nodiscard]] std::size_t index() const { return static_cast<std::size_t>(fabric->group().index); }
    [[nodiscard]] const Slice& own() const { return parts[index()]; }
  };
  [[nodiscard]] std::byte* values() const;
  [[nodiscard]] float* residual() const { return reinterpret_cast<float*>(bucket_.state.data()); }
  [[nodiscard]] Result<float*> floats(std::size_t count) const;
  [[nodiscard]] Status clear_padding() const;
  [[nodiscard]] Result<float*> accumulate(const Slice& tile) const;
  [[nodiscard]] Status quantise_sums(std::byte* to, float* sums, const Slice& tile) const;
  [[nodiscard]] Status write(std::byte* to, const Level& level, const Slice& part) const;
  [[nodiscard]] Status take_own(float* to, const Level& level, const Slice& tile) const;
  [[nodiscard]] std::size_t bytes_before(std::size_t level) const;
  [[nodiscard]] std::size_t bytes_within(std::size_t level, const Slice& part) const;

  Workspace& workspace_;
  const Bucket& bucket_;
  const Place place_;
  const Slice shard_;  // of the bucket; all other slices are parts of it, and count from its first element
  std::vector<Level> levels_;
  std::vector<int> sizes_;  // the members of each level
  float* sums_ = nullptr;   // of the last level's own part; null: the residual has them, of the whole
  std::byte* messages_ = nullptr;
};

}  // namespace roundelay::compress::quantised
