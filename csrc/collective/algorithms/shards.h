// Reduce-scatter by pairwise exchange, as the steps of a program: all parts of a member's shard come to it,
// piece by piece, and are reduced there in the order of members.
#pragma once

#include <cstddef>
#include <vector>

#include "collective/call.h"
#include "collective/exchange.h"

namespace roundelay::collective {

class Shards {
 public:
  // `bytes` by member: the shards, which follow each other in `input`.
  Shards(Exchange& net, const Reduction& how, const std::byte* input, std::vector<std::size_t> bytes);

  // Every shard has as many pieces, the last ones perhaps empty.
  [[nodiscard]] std::size_t pieces() const { return pieces_; }
  // Posts the transfers of all pieces that may be in flight while `piece` is awaited.
  void post_up_to(std::size_t piece);
  // With the partner of step 1..P-1.
  [[nodiscard]] Transfer received(std::size_t piece, int step) const { return received_[unit(piece, step)]; }
  [[nodiscard]] Transfer sent(std::size_t piece, int step) const { return sent_[unit(piece, step)]; }
  // Of this member's shard, when all parts of the piece have been received. `to` may be where its own part
  // is.
  void reduce(std::size_t piece, std::byte* to);

  // Where a piece of a member's shard lies in `input`.
  [[nodiscard]] ByteRange range(int member, std::size_t piece) const;
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
