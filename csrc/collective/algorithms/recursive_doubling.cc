// Recursive doubling: in round k members at distance 2^k exchange all they have. Few messages, but whole
// ones: for small buffers. Members beyond the largest power of two fold into a neighbour first and get the
// result.
#include <bit>

#include "collective/algorithms/algorithms.h"
#include "kernels/kernels.h"

namespace roundelay::collective {
namespace {

// The members that take part in the rounds, renumbered 0..2^n-1 in the order of their indices.
struct Rounds {
  explicit Rounds(int size) : members(static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))) {
    folded = size - members;
  }
  // The first 2 * folded members are pairs: the odd one gives its part to the even one.
  [[nodiscard]] bool in_pair(int index) const { return index < 2 * folded; }
  [[nodiscard]] int number(int index) const { return in_pair(index) ? index / 2 : index - folded; }
  [[nodiscard]] int index(int number) const { return number < folded ? 2 * number : number + folded; }

  int members;
  int folded = 0;
};

}  // namespace

Program recursive_doubling_allreduce(Exchange& net, Call call) {
  const std::size_t bytes = call.buffer.bytes;
  const std::size_t count = bytes / size_of(call.dtype);
  const Rounds rounds(net.size());
  std::byte* const buffer = call.buffer.data();

  if (rounds.in_pair(net.index()) && net.index() % 2 == 1) {
    const Transfer given = net.send(net.index() - 1, {buffer, bytes});
    co_await net.done(given);
    const Transfer result = net.receive(net.index() - 1, {buffer, bytes});
    co_await net.done(result);
    co_return;
  }
  std::byte* mine = buffer;
  std::byte* other = net.scratch(bytes);
  if (rounds.in_pair(net.index())) {
    const Transfer taken = net.receive(net.index() + 1, {other, bytes});
    co_await net.done(taken);
    kernels::reduce(mine, other, count, call.dtype, call.reduce_op);
  }
  const int number = rounds.number(net.index());
  for (int distance = 1; distance < rounds.members; distance *= 2) {
    const int peer = rounds.index(number ^ distance);
    const Transfer incoming = net.receive(peer, {other, bytes});
    const Transfer outgoing = net.send(peer, {mine, bytes});
    co_await net.done(incoming, outgoing);
    // Both sides compute lower op higher, bit for bit the same also for NaN payloads and signed zeros.
    if (net.index() > peer) std::swap(mine, other);
    kernels::reduce(mine, other, count, call.dtype, call.reduce_op);
  }
  if (mine != buffer || !call.scale.identity()) {
    kernels::scale_copy(buffer, mine, count, call.dtype, call.scale);
  }
  if (rounds.in_pair(net.index())) {
    const Transfer result = net.send(net.index() + 1, {buffer, bytes});
    co_await net.done(result);
  }
}

}  // namespace roundelay::collective
