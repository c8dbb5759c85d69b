// Recursive doubling: in round k members at distance 2^k exchange all that they have, in few but long
// messages. Members beyond the largest power of two give their vector to a neighbour first, and get the
// result from it. Adasum reduces whole vectors, so that it goes no other way. An all-gather exchanges all
// parts that a member has so far.
#include <utility>

#include "collective/algorithms/algorithms.h"
#include "collective/algorithms/doubling.h"
#include "collective/algorithms/numbered_parts.h"

namespace roundelay::collective {
namespace {

// Adasum needs the host: its factors depend on sums over the whole vectors.
void unite(LocalWork& work, const Reduction& how, std::byte* a, const std::byte* b, std::size_t count) {
  if (how.reduce_op == ReduceOp::kAdasum) {
    merge(how, a, b, count);
  } else {
    work.reduce(how, a, b, count);
  }
}

}  // namespace

Program recursive_doubling_allreduce(Exchange& net, const AllreduceCall& call) {
  const std::size_t count = call.buffer.bytes / size_of(call.dtype);
  const DType dtype = working_type(call);
  const std::size_t bytes = count * size_of(dtype);
  const Doubling doubling(net.size());
  std::byte* const buffer = call.buffer.data();
  std::byte* mine = dtype == call.dtype ? buffer : net.scratch(bytes);
  net.work().scale_copy(buffer, buffer, count, call.dtype, call.prescale);
  net.work().cast(mine, dtype, buffer, call.dtype, count);

  if (doubling.gives_away(net.index())) {
    const Transfer given = net.send(net.index() - 1, {mine, bytes});
    co_await net.done(given);
    const Transfer result = net.receive(net.index() - 1, {buffer, call.buffer.bytes});
    co_await net.done(result);
    co_return;
  }
  std::byte* other = net.scratch(bytes);
  if (doubling.in_pair(net.index())) {
    const Transfer taken = net.receive(net.index() + 1, {other, bytes});
    co_await net.done(taken);
    unite(net.work(), call, mine, other, count);
  }
  for (int distance = 1; distance < doubling.members; distance *= 2) {
    const int peer = doubling.partner(net.index(), distance);
    const Transfer incoming = net.receive(peer, {other, bytes});
    const Transfer outgoing = net.send(peer, {mine, bytes});
    co_await net.done(incoming, outgoing);
    // Both sides compute "lower op higher", so that they get the same bits.
    if (net.index() > peer) std::swap(mine, other);
    unite(net.work(), call, mine, other, count);
  }
  net.work().cast(buffer, call.dtype, mine, dtype, count);
  net.work().scale_copy(buffer, buffer, count, call.dtype, call.scale);
  if (doubling.in_pair(net.index())) {
    const Transfer result = net.send(net.index() + 1, {buffer, call.buffer.bytes});
    co_await net.done(result);
  }
}

Program recursive_doubling_all_gather(Exchange& net, const AllgatherCall& call) {
  const Doubling doubling(net.size());
  const NumberedParts parts(doubling, call.receive_bytes);
  const auto place = [&](ByteRange range) { return call.output.subspan(range.offset, range.bytes); };
  const ByteSpan own = place(parts.of_member(net.index()));
  if (!own.empty() && own.data() != call.input) net.work().copy(own.data(), call.input, own.size());

  if (doubling.gives_away(net.index())) {
    const Transfer given = own.empty() ? kNoTransfer : net.send(net.index() - 1, own);
    co_await net.done(given);
    const Transfer result = net.receive(net.index() - 1, call.output);
    co_await net.done(result);
    co_return;
  }
  if (doubling.in_pair(net.index())) {
    const ByteSpan others = place(parts.of_member(net.index() + 1));
    const Transfer taken = others.empty() ? kNoTransfer : net.receive(net.index() + 1, others);
    co_await net.done(taken);
  }
  for (int distance = 1; distance < doubling.members; distance *= 2) {
    const int peer = doubling.partner(net.index(), distance);
    const int first = doubling.number(net.index()) & -distance;
    const ByteSpan others = place(parts.of_numbers(first ^ distance, distance));
    const ByteSpan mine = place(parts.of_numbers(first, distance));
    const Transfer incoming = others.empty() ? kNoTransfer : net.receive(peer, others);
    const Transfer outgoing = mine.empty() ? kNoTransfer : net.send(peer, mine);
    co_await net.done(incoming, outgoing);
  }
  if (doubling.in_pair(net.index())) {
    const Transfer result = net.send(net.index() + 1, call.output);
    co_await net.done(result);
  }
}

}  // namespace roundelay::collective
