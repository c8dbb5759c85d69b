// Direct allreduce: every member sends its buffer to all others, and reduces all buffers itself. It takes one
// round, and is for small buffers.
#include <vector>

#include "collective/algorithms/algorithms.h"

namespace roundelay::collective {

Program direct_allreduce(Exchange& net, const AllreduceCall& call) {
  const int size = net.size();
  const std::size_t bytes = call.buffer.bytes;
  std::byte* place = net.scratch(bytes * static_cast<std::size_t>(size - 1));
  std::vector<const void*> parts(static_cast<std::size_t>(size), call.buffer.data());
  for (int step = 1; step < size; ++step, place += bytes) {
    const int peer = (net.index() + size - step) % size;
    parts[static_cast<std::size_t>(peer)] = place;
    net.receive(peer, {place, bytes});
  }
  for (int step = 1; step < size; ++step) {
    net.send((net.index() + step) % size, {call.buffer.data(), bytes});
  }
  co_await net.all();
  net.work().reduce_parts(call, call.buffer.data(), parts, bytes / size_of(call.dtype));
}

}  // namespace roundelay::collective
