// Recursive doubling: in round k members at distance 2^k exchange all they have. Few messages, but whole
// ones. Members beyond the largest power of two fold into a neighbour first and get the result. Adasum is a
// reduction of whole vectors and goes no other way.
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

// What travels: the buffer's own type, for Adasum at least fp32.
DType working_type(const Call& call) {
  const bool widened = call.reduce_op == ReduceOp::kAdasum && size_of(call.dtype) < size_of(DType::kFloat32);
  return widened ? DType::kFloat32 : call.dtype;
}

// a = a op b, where a is the lower member's.
void merge(const Call& call, std::byte* a, const std::byte* b, std::size_t count) {
  const DType dtype = working_type(call);
  if (call.reduce_op != ReduceOp::kAdasum) return kernels::reduce(a, b, count, dtype, call.reduce_op);
  const kernels::Dots dots = kernels::dots(a, b, count, dtype);
  // A zero vector takes nothing from the other.
  const double factor_a = dots.aa == 0 ? 1 : 1 - dots.ab / (2 * dots.aa);
  const double factor_b = dots.bb == 0 ? 1 : 1 - dots.ab / (2 * dots.bb);
  kernels::combine(a, factor_a, b, factor_b, count, dtype);
}

}  // namespace

Program recursive_doubling_allreduce(Exchange& net, Call call) {
  const std::size_t count = call.buffer.bytes / size_of(call.dtype);
  const DType dtype = working_type(call);
  const std::size_t bytes = count * size_of(dtype);
  const Rounds rounds(net.size());
  std::byte* const buffer = call.buffer.data();
  std::byte* mine = dtype == call.dtype ? buffer : net.scratch(bytes);
  kernels::cast(mine, dtype, buffer, call.dtype, count);
  kernels::scale_copy(mine, mine, count, dtype, call.prescale);

  if (rounds.in_pair(net.index()) && net.index() % 2 == 1) {
    const Transfer given = net.send(net.index() - 1, {mine, bytes});
    co_await net.done(given);
    const Transfer result = net.receive(net.index() - 1, {buffer, call.buffer.bytes});
    co_await net.done(result);
    co_return;
  }
  std::byte* other = net.scratch(bytes);
  if (rounds.in_pair(net.index())) {
    const Transfer taken = net.receive(net.index() + 1, {other, bytes});
    co_await net.done(taken);
    merge(call, mine, other, count);
  }
  const int number = rounds.number(net.index());
  for (int distance = 1; distance < rounds.members; distance *= 2) {
    const int peer = rounds.index(number ^ distance);
    const Transfer incoming = net.receive(peer, {other, bytes});
    const Transfer outgoing = net.send(peer, {mine, bytes});
    co_await net.done(incoming, outgoing);
    // Both sides compute lower op higher, bit for bit the same.
    if (net.index() > peer) std::swap(mine, other);
    merge(call, mine, other, count);
  }
  kernels::scale_copy(mine, mine, count, dtype, call.scale);
  kernels::cast(buffer, call.dtype, mine, dtype, count);
  if (rounds.in_pair(net.index())) {
    const Transfer result = net.send(net.index() + 1, {buffer, call.buffer.bytes});
    co_await net.done(result);
  }
}

}  // namespace roundelay::collective
