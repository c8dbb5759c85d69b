#include "collective/algorithms/piece_exchange.h"

#include <algorithm>

namespace roundelay::collective {
namespace {

// Returns a piece of a range; an empty one after the range's end.
template <class Span>
Span piece_of(Span range, std::size_t piece, std::size_t piece_bytes) {
  const std::size_t begin = std::min(piece * piece_bytes, range.size());
  return range.subspan(begin, std::min(piece_bytes, range.size() - begin));
}

}  // namespace

PieceExchange::PieceExchange(Exchange& net, const Reduction& how, int peer, ConstByteSpan given, ByteSpan own,
                             std::size_t piece_bytes)
    : net_(net), how_(how), peer_(peer), given_(given), own_(own), piece_bytes_(piece_bytes) {
  const std::size_t pieces = (std::max(given.size(), own.size()) + piece_bytes - 1) / piece_bytes;
  window_ = std::min(kWindow, pieces);
  if (!own.empty()) slots_ = net.scratch(window_ * std::min(piece_bytes, own.size()));
  received_.assign(pieces, kNoTransfer);
  sent_.assign(pieces, kNoTransfer);
}

void PieceExchange::post_up_to(std::size_t piece) {
  for (; posted_ < std::min(piece + window_, pieces()); ++posted_) {
    const ByteSpan own = piece_of(own_, posted_, piece_bytes_);
    if (!own.empty()) {
      received_[posted_] = net_.receive(peer_, {slots_ + (posted_ % window_) * piece_bytes_, own.size()});
    }
    const ConstByteSpan given = piece_of(given_, posted_, piece_bytes_);
    if (!given.empty()) sent_[posted_] = net_.send(peer_, given);
  }
}

void PieceExchange::reduce(std::size_t piece) {
  const ByteSpan own = piece_of(own_, piece, piece_bytes_);
  if (own.empty()) return;
  const std::byte* const slot = slots_ + (piece % window_) * piece_bytes_;
  net_.work().reduce(how_, own.data(), slot, own.size() / size_of(how_.dtype));
}

}  // namespace roundelay::collective
