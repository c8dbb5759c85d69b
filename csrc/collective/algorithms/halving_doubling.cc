// Allreduce by recursive halving and doubling. In round k of the first half members at distance 2^k exchange
// halves of the range that both still work on, and each reduces the half that it keeps. The second half goes
// the same way back with the finished ranges. Members beyond the largest power of two give their vector to a
// neighbour first, and get the result from it. Each element is summed pair by pair as in recursive doubling,
// so that its sum has the same bits.
#include <vector>

#include "collective/algorithms/algorithms.h"
#include "collective/algorithms/doubling.h"
#include "collective/algorithms/piece_exchange.h"

namespace roundelay::collective {
namespace {

struct Halves {
  ByteSpan kept, given;
};

// `lower`: whether this member's index is the lower one of the two.
Halves halves(ByteSpan range, std::size_t element, bool lower) {
  const std::size_t half = range.size() / element / 2 * element;
  const ByteSpan low = range.first(half), high = range.subspan(half);
  return lower ? Halves{low, high} : Halves{high, low};
}

void scale(LocalWork& work, ByteSpan range, DType dtype, Scale by) {
  work.scale_copy(range.data(), range.data(), range.size() / size_of(dtype), dtype, by);
}

}  // namespace

Program halving_doubling_allreduce(Exchange& net, const AllreduceCall& call) {
  const Doubling doubling(net.size());
  const ByteSpan whole(call.buffer.data(), call.buffer.bytes);
  scale(net.work(), whole, call.dtype, call.prescale);

  if (doubling.in_pair(net.index())) {
    const bool gives = doubling.gives_away(net.index());
    PieceExchange fold(net, call, net.index() ^ 1, gives ? whole : ByteSpan{}, gives ? ByteSpan{} : whole);
    for (std::size_t piece = 0; piece < fold.pieces(); ++piece) {
      fold.post_up_to(piece);
      co_await net.done(fold.received(piece), fold.sent(piece));
      fold.reduce(piece);
    }
  }
  if (doubling.gives_away(net.index())) {
    const Transfer result = net.receive(net.index() - 1, whole);
    co_await net.done(result);
    co_return;
  }

  std::vector<Halves> rounds;
  ByteSpan mine = whole;
  for (int distance = 1; distance < doubling.members; distance *= 2) {
    const int peer = doubling.partner(net.index(), distance);
    rounds.push_back(halves(mine, size_of(call.dtype), net.index() < peer));
    mine = rounds.back().kept;
    PieceExchange step(net, call, peer, rounds.back().given, mine);
    for (std::size_t piece = 0; piece < step.pieces(); ++piece) {
      step.post_up_to(piece);
      co_await net.done(step.received(piece), step.sent(piece));
      step.reduce(piece);
    }
  }
  scale(net.work(), mine, call.dtype, call.scale);
  for (int distance = doubling.members / 2; distance > 0; distance /= 2) {
    const int peer = doubling.partner(net.index(), distance);
    const Halves& round = rounds.back();
    const Transfer incoming = round.given.empty() ? kNoTransfer : net.receive(peer, round.given);
    const Transfer outgoing = round.kept.empty() ? kNoTransfer : net.send(peer, round.kept);
    co_await net.done(incoming, outgoing);
    rounds.pop_back();
  }
  if (doubling.in_pair(net.index())) {
    const Transfer result = net.send(net.index() + 1, whole);
    co_await net.done(result);
  }
}

}  // namespace roundelay::collective
