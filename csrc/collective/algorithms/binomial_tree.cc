// Broadcast down a binomial tree. Members are numbered from the root. A member's parent has its number with
// the lowest set bit cleared. Segments follow each other down, so that inner members send one while they
// receive the next.
#include <algorithm>
#include <vector>

#include "collective/algorithms/algorithms.h"

namespace roundelay::collective {
namespace {

constexpr std::size_t kSegmentBytes = 256 << 10;

}  // namespace

Program binomial_tree_broadcast(Exchange& net, const BroadcastCall& call) {
  const int size = net.size();
  const int number = (net.index() - call.root + size) % size;
  const int lowest_bit = number == 0 ? size : number & -number;
  const int parent = number == 0 ? -1 : ((number & (number - 1)) + call.root) % size;
  const std::size_t segments = (call.buffer.size() + kSegmentBytes - 1) / kSegmentBytes;
  std::vector<Transfer> received(segments, kNoTransfer);
  std::vector<Transfer> posted_by(segments, 0);  // transfers posted up to and with this segment's sends

  std::size_t posted = 0;
  for (std::size_t segment = 0; segment < segments; ++segment) {
    for (; parent >= 0 && posted < std::min(segment + kWindow, segments); ++posted) {
      const std::size_t begin = posted * kSegmentBytes;
      const std::size_t bytes = std::min(kSegmentBytes, call.buffer.size() - begin);
      received[posted] = net.receive(parent, {call.buffer.data() + begin, bytes});
    }
    co_await net.done(received[segment]);
    const std::size_t begin = segment * kSegmentBytes;
    const std::size_t bytes = std::min(kSegmentBytes, call.buffer.size() - begin);
    int distance = 1;
    while (distance * 2 < lowest_bit) distance *= 2;  // the largest subtree first
    for (; distance > 0 && distance < lowest_bit; distance /= 2) {
      if (number + distance >= size) continue;
      net.send((number + distance + call.root) % size, {call.buffer.data() + begin, bytes});
    }
    posted_by[segment] = net.next();
    if (parent < 0 && segment >= kWindow) co_await net.done_before(posted_by[segment - kWindow]);
  }
  co_await net.all();
}

}  // namespace roundelay::collective
