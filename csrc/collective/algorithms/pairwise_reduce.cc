// Allreduce and reduce-scatter by pairwise exchange. Members send as many bytes as in the ring, but every
// element is summed in one place. A finished piece of the allreduce leaves for all members while the next
// ones arrive.
#include <vector>

#include "collective/algorithms/algorithms.h"
#include "collective/algorithms/shards.h"

namespace roundelay::collective {
namespace {

constexpr int kFinished = 1;  // the stream of finished pieces; parts travel in stream 0

// Returns shards as even as whole elements allow. The first ones have one element more.
std::vector<std::size_t> even_shards(const AllreduceCall& call, int size) {
  const std::size_t element = size_of(call.dtype), members = static_cast<std::size_t>(size);
  const std::size_t count = call.buffer.bytes / element;
  std::vector<std::size_t> bytes(members);
  for (std::size_t i = 0; i < members; ++i) {
    bytes[i] = (count / members + (i < count % members ? 1 : 0)) * element;
  }
  return bytes;
}

}  // namespace

Program pairwise_allreduce(Exchange& net, const AllreduceCall& call) {
  std::byte* const buffer = call.buffer.data();
  Shards shards(net, call, buffer, even_shards(call, net.size()));
  for (std::size_t piece = 0; piece < shards.pieces(); ++piece) {
    shards.post_up_to(piece);
    for (int step = 1; step < net.size(); ++step) co_await net.done(shards.received(piece, step));
    const ByteRange mine = shards.range(net.index(), piece);
    shards.reduce(piece, buffer + mine.offset);
    for (int step = 1; step < net.size() && mine.bytes > 0; ++step) {
      net.send(shards.target(step), {buffer + mine.offset, mine.bytes}, kFinished);
    }
    for (int step = 1; step < net.size(); ++step) {
      const ByteRange theirs = shards.range(shards.target(step), piece);
      if (theirs.bytes == 0) continue;
      co_await net.done(shards.sent(piece, step));  // the finished piece overwrites the part
      net.receive(shards.target(step), {buffer + theirs.offset, theirs.bytes}, kFinished);
    }
  }
  co_await net.all();
}

Program pairwise_reduce_scatter(Exchange& net, const ReducescatterCall& call) {
  Shards shards(net, call, call.input, call.shard_bytes);
  std::byte* to = call.output.data();
  for (std::size_t piece = 0; piece < shards.pieces(); ++piece) {
    shards.post_up_to(piece);
    for (int step = 1; step < net.size(); ++step) co_await net.done(shards.received(piece, step));
    shards.reduce(piece, to);
    to += shards.range(net.index(), piece).bytes;
  }
  co_await net.all();
}

}  // namespace roundelay::collective
