// One step of an algorithm that halves its vector, or that sums along a tree: this member gives a range of
// bytes to a peer and takes a range from it, piece by piece, and reduces the pieces into a range of its own.
#pragma once

#include <cstddef>
#include <vector>

#include "base/bytes.h"
#include "collective/algorithms/algorithms.h"
#include "collective/call.h"
#include "collective/program/exchange.h"

namespace roundelay::collective {

// One thread at a time. The exchange, the arithmetic and the ranges outlive it. The peer has a PieceExchange
// too, with the two sizes swapped.
class PieceExchange {
 public:
  // `given` goes to the peer, and the peer sends as many bytes as `own` has. Either may be empty.
  PieceExchange(Exchange& net, const Reduction& how, int peer, ConstByteSpan given, ByteSpan own,
                std::size_t piece_bytes = kPieceBytes);

  // Returns the number of pieces of the longer range.
  [[nodiscard]] std::size_t pieces() const { return received_.size(); }
  // Posts the transfers of all pieces that may be on their way while the program waits for `piece`.
  void post_up_to(std::size_t piece);
  // Return the transfers of a piece that is posted.
  [[nodiscard]] Transfer received(std::size_t piece) const { return received_[piece]; }
  [[nodiscard]] Transfer sent(std::size_t piece) const { return sent_[piece]; }
  // Computes own = own op received for a piece that has been received, without the scales.
  void reduce(std::size_t piece);

 private:
  Exchange& net_;
  const Reduction& how_;
  const int peer_;
  const ConstByteSpan given_;
  const ByteSpan own_;
  const std::size_t piece_bytes_;
  std::size_t window_ = 0;
  std::byte* slots_ = nullptr;  // room of `window_` received pieces
  std::size_t posted_ = 0;      // pieces
  std::vector<Transfer> received_, sent_;
};

}  // namespace roundelay::collective
