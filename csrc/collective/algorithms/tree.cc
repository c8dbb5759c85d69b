#include "collective/algorithms/tree.h"

#include <algorithm>
#include <bit>

#include "collective/algorithms/algorithms.h"
#include "collective/algorithms/doubling.h"
#include "collective/algorithms/piece_exchange.h"

namespace roundelay::collective {
namespace {

ByteSpan segment_of(ByteSpan buffer, std::size_t segment, std::size_t bytes) {
  const std::size_t begin = segment * bytes;
  return buffer.subspan(begin, std::min(bytes, buffer.size() - begin));
}

}  // namespace

Tree binomial_tree(int size, int index, int root) {
  const Doubling doubling(size);
  const int place = (index + size - root) % size;  // counted from the root
  const auto member = [=](int at) { return (at + root) % size; };
  if (doubling.gives_away(place)) return {member(place - 1), {}};
  Tree tree;
  if (doubling.in_pair(place)) tree.children.push_back(member(place + 1));
  const int number = doubling.number(place);
  for (int distance = 1; distance < doubling.members && (number & distance) == 0; distance *= 2) {
    tree.children.push_back(member(doubling.index_of(number + distance)));
  }
  if (number != 0) tree.parent = member(doubling.index_of(number & (number - 1)));
  return tree;
}

// The members of a subtree follow each other, its root first.
Tree binary_tree(int size, int index, int root) {
  const int place = (index + size - root) % size;
  const auto member = [=](int at) { return (at + root) % size; };
  Tree tree;
  int begin = 0, end = size;
  while (true) {
    const int second = begin + 1 + (end - begin - 1) / 2;  // the root of the second subtree
    if (place == begin) {
      if (begin + 1 < second) tree.children.push_back(member(begin + 1));
      if (second < end) tree.children.push_back(member(second));
      return tree;
    }
    tree.parent = member(begin);
    if (place < second) {
      begin += 1;
      end = second;
    } else {
      begin = second;
    }
  }
}

// In unit u of its loop a member sends the sum of segment u up, makes segment u - kWindow ready to receive
// the result, and sends the result of segment u - `later` down. So it does not wait for results while there
// are sums to send: a segment takes at most twice the tree's depth to come back.
Program tree_allreduce(Exchange& net, const AllreduceCall& call, Tree tree, std::size_t segment_bytes) {
  const ByteSpan buffer(call.buffer.data(), call.buffer.bytes);
  const std::size_t element = size_of(call.dtype);
  net.work().scale_copy(buffer.data(), buffer.data(), buffer.size() / element, call.dtype, call.prescale);
  std::vector<PieceExchange> children;
  for (const int child : tree.children) {
    children.emplace_back(net, call, child, ConstByteSpan{}, buffer, segment_bytes);
  }
  const bool root = tree.parent < 0;
  const std::size_t segments = (buffer.size() + segment_bytes - 1) / segment_bytes;
  const std::size_t depth = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(net.size())));
  const std::size_t later = root ? 0 : kWindow + 2 * depth;
  std::vector<Transfer> given(segments, kNoTransfer), result(segments, kNoTransfer);

  for (std::size_t unit = 0; unit < segments + later; ++unit) {
    if (unit < segments) {
      for (PieceExchange& child : children) {
        child.post_up_to(unit);
        co_await net.done(child.received(unit));
        child.reduce(unit);
      }
      const ByteSpan sum = segment_of(buffer, unit, segment_bytes);
      if (root) {
        net.work().scale_copy(sum.data(), sum.data(), sum.size() / element, call.dtype, call.scale);
      } else {
        given[unit] = net.send(tree.parent, sum);
      }
    }
    if (!root && unit >= kWindow && unit - kWindow < segments) {
      co_await net.done(given[unit - kWindow]);  // the result overwrites the sum
      result[unit - kWindow] = net.receive(tree.parent, segment_of(buffer, unit - kWindow, segment_bytes));
    }
    if (unit < later) continue;
    co_await net.done(result[unit - later]);
    for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child) {
      net.send(*child, segment_of(buffer, unit - later, segment_bytes));
    }
  }
  co_await net.all();
}

Program tree_broadcast(Exchange& net, const BroadcastCall& call, Tree tree, std::size_t segment_bytes) {
  const std::size_t segments = (call.buffer.size() + segment_bytes - 1) / segment_bytes;
  std::vector<Transfer> received(segments, kNoTransfer);
  std::vector<Transfer> posted_by(segments, 0);  // transfers posted up to and with this segment's sends

  std::size_t posted = 0;
  for (std::size_t segment = 0; segment < segments; ++segment) {
    for (; tree.parent >= 0 && posted < std::min(segment + kWindow, segments); ++posted) {
      received[posted] = net.receive(tree.parent, segment_of(call.buffer, posted, segment_bytes));
    }
    co_await net.done(received[segment]);
    for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child) {
      net.send(*child, segment_of(call.buffer, segment, segment_bytes));
    }
    posted_by[segment] = net.next();
    if (segment >= kWindow) co_await net.done_before(posted_by[segment - kWindow]);
  }
  co_await net.all();
}

}  // namespace roundelay::collective
