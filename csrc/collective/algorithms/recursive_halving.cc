// Reduce-scatter by recursive halving. In each round members at half the distance of the last one exchange
// their parts of the shards that the other side still works on. Members beyond the largest power of two give
// their vector to a neighbour first, and get their shard from it.

#include "collective/algorithms/algorithms.h"
#include "collective/algorithms/doubling.h"
#include "collective/algorithms/numbered_parts.h"
#include "collective/algorithms/piece_exchange.h"

namespace roundelay::collective {

Program recursive_halving_reduce_scatter(Exchange& net, const ReducescatterCall& call) {
  const Doubling doubling(net.size());
  const std::size_t element = size_of(call.dtype);
  const NumberedParts parts(doubling, call.shard_bytes);
  const ByteSpan vector(net.scratch(parts.bytes()), parts.bytes());  // the input stays as it is
  const auto shards = [&](int first, int count) {
    const ByteRange range = parts.of_numbers(first, count);
    return vector.subspan(range.offset, range.bytes);
  };
  net.work().scale_copy(vector.data(), call.input, vector.size() / element, call.dtype, call.prescale);

  const bool gives = doubling.gives_away(net.index());
  if (doubling.in_pair(net.index())) {
    PieceExchange fold(net, call, net.index() ^ 1, gives ? vector : ByteSpan{}, gives ? ByteSpan{} : vector);
    for (std::size_t piece = 0; piece < fold.pieces(); ++piece) {
      fold.post_up_to(piece);
      co_await net.done(fold.received(piece), fold.sent(piece));
      fold.reduce(piece);
    }
  }
  if (gives) {
    if (call.output.empty()) co_return;
    const Transfer result = net.receive(net.index() - 1, call.output);
    co_await net.done(result);
    co_return;
  }

  const int number = doubling.number(net.index());
  for (int distance = doubling.members / 2; distance > 0; distance /= 2) {
    const int kept = number & -distance;  // the first of the numbers whose shards this member still works on
    PieceExchange step(net, call, doubling.partner(net.index(), distance), shards(kept ^ distance, distance),
                       shards(kept, distance));
    for (std::size_t piece = 0; piece < step.pieces(); ++piece) {
      step.post_up_to(piece);
      co_await net.done(step.received(piece), step.sent(piece));
      step.reduce(piece);
    }
  }
  const ByteSpan mine = shards(number, 1);  // of the pair, if there is one
  net.work().scale_copy(mine.data(), mine.data(), mine.size() / element, call.dtype, call.scale);
  if (!call.output.empty()) net.work().copy(call.output.data(), mine.data(), call.output.size());
  const ByteSpan others = mine.subspan(call.output.size());
  if (!others.empty()) {
    const Transfer result = net.send(net.index() + 1, others);
    co_await net.done(result);
  }
}

}  // namespace roundelay::collective
