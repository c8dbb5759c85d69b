// The steps of a reduce-scatter by pairwise exchange, for programs: all parts of a member's shard come to it,
// piece by piece, and it reduces them in the order of members.
#pragma once

#include <cstddef>
#include <vector>

#include "collective/call.h"
#include "collective/program/exchange.h"

namespace roundelay::collective {

// One thread at a time. The exchange and the input outlive it.
class Shards {
 public:
  // `bytes` has the size of each member's shard. The shards follow each other in `input`.
  Shards(Exchange& net, const Reduction& how, const std::byte* input, std::vector<std::size_t> bytes);

  // Returns the number of pieces, which is the same for all shards; the last ones may be empty.
  [[nodiscard]] std::size_t pieces() const { return pieces_; }
  // Posts the transfers of all pieces that may be on their way while the program waits for `piece`.
  void post_up_to(std::size_t piece);
  // Return the transfer with the partner of a step from 1 to P-1.
  [[nodiscard]] Transfer received(std::size_t piece, int step) const { return received_[unit(piece, step)]; }
  [[nodiscard]] Transfer sent(std::size_t piece, int step) const { return sent_[unit(piece, step)]; }
  // Reduces a piece of this member's shard to `to`, which may be the place of its own part. Call it when all
  // parts of the piece have been received.
  void reduce(std::size_t piece, std::byte* to);

  // Returns where a piece of a member's shard lies in `input`.
  [[nodiscard]] ByteRange range(int member, std::size_t piece) const;
  // Return the members that this one sends to, and receives from, in a step.
  [[nodiscard]] int target(int step) const { return (index_ + step) % size_; }
  [[nodiscard]] int source(int step) const { return (index_ + size_ - step) % size_; }

 private:
  [[nodiscard]] std::size_t unit(std::size_t piece, int step) const {
    return piece * static_cast<std::size_t>(size_) + static_cast<std::size_t>(step);
  }
  [[nodiscard]] std::byte* slot(std::size_t piece, int step) const {
    const auto others = static_cast<std::size_t>(size_ - 1);
    return scratch_ + ((piece % window_) * others + static_cast<std::size_t>(step - 1)) * piece_bytes_;
  }

  Exchange& net_;
  const Reduction& how_;
  const std::byte* const input_;
  const int index_, size_;
  const std::vector<std::size_t> bytes_;
  std::vector<std::size_t> offsets_;
  std::size_t pieces_ = 1, piece_bytes_ = 0, window_ = 1;
  std::byte* scratch_ = nullptr;
  std::size_t posted_ = 0;  // pieces
  std::vector<Transfer> received_, sent_;
  std::vector<const void*> parts_;
};

}  // namespace roundelay::collective
