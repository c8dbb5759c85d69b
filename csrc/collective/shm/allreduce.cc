#include <algorithm>
#include <cstring>
#include <vector>

#include "collective/shm/chunks.h"
#include "collective/shm/programs.h"
#include "kernels/kernels.h"

namespace roundelay::collective::shm {
namespace {

constexpr std::size_t kMostTogether = 8 << 10;  // that each member had better sum up by itself
constexpr std::size_t kBlock = 16 << 10;        // stays in the first-level cache

// The same bytes of all members, in the order of members: this one's where they are, the others' from their
// slots.
class Parts {
 public:
  Parts(const Rounds& net, const Call& call)
      : net_(net), call_(call), parts_(static_cast<std::size_t>(net.size())) {}

  // `range` of the slots; `to` may be `own`.
  void reduce(std::uint64_t round, Range range, const std::byte* own, std::byte* to) {
    for (int member = 0; member < net_.size(); ++member) {
      parts_[static_cast<std::size_t>(member)] =
          member == net_.index() ? own : net_.slot_of(member, round) + range.offset;
    }
    kernels::reduce_parts(to, parts_, range.bytes / size_of(call_.dtype), call_.dtype, call_.reduce_op,
                          call_.prescale, call_.scale);
  }

 private:
  const Rounds& net_;
  const Call& call_;
  std::vector<const void*> parts_;
};

// What the others reduce of this member's part of a round.
void stage(Rounds& net, std::uint64_t round, const std::byte* chunk, Range mine, std::size_t bytes) {
  const std::size_t end = mine.offset + mine.bytes;
  std::memcpy(net.slot(round), chunk, mine.offset);
  std::memcpy(net.slot(round) + end, chunk + end, bytes - end);
  net.stage(round);
}

// This member's share: in its place in the buffer, and in the slot for the others.
void reduce_share(Rounds& net, std::uint64_t round, Parts& parts, std::byte* chunk, Range mine) {
  const Cuts blocks{mine.bytes, kBlock};
  for (std::uint64_t i = 0; i < blocks.count(); ++i) {
    const Range block{mine.offset + blocks[i].offset, blocks[i].bytes};
    parts.reduce(round, block, chunk + block.offset, chunk + block.offset);
    std::memcpy(net.slot(round) + block.offset, chunk + block.offset, block.bytes);
  }
  net.reduce(round);
}

Program allreduce_together(Rounds& net, Call call) {
  std::byte* const buffer = call.buffer.data();
  Parts parts(net, call);
  co_await net.writable(0);
  std::memcpy(net.slot(0), buffer, call.buffer.bytes);
  net.stage(0);
  co_await net.staged(0);
  parts.reduce(0, {0, call.buffer.bytes}, buffer, buffer);
}

Program allreduce_by_shares(Rounds& net, Call call) {
  std::byte* const buffer = call.buffer.data();
  const Cuts chunks{call.buffer.bytes, net.slot_bytes()};
  const auto self = static_cast<std::uint64_t>(net.index());
  Parts parts(net, call);
  std::uint64_t staged = 0;
  for (std::uint64_t round = 0; round < chunks.count(); ++round) {
    // The next round's part is staged before this one is waited for.
    for (; staged < chunks.count() && staged <= round + 1; ++staged) {
      co_await net.writable(staged);
      const Range chunk = chunks[staged];
      stage(net, staged, buffer + chunk.offset, shares(chunk.bytes, net.size())[self], chunk.bytes);
    }
    std::byte* const chunk = buffer + chunks[round].offset;
    const Cuts share = shares(chunks[round].bytes, net.size());
    co_await net.staged(round);
    reduce_share(net, round, parts, chunk, share[self]);
    for (int step = 1; step < net.size(); ++step) {
      const int member = (net.index() + step) % net.size();
      co_await net.reduced(member, round);
      const Range theirs = share[static_cast<std::uint64_t>(member)];
      std::memcpy(chunk + theirs.offset, net.slot_of(member, round) + theirs.offset, theirs.bytes);
    }
    net.release(round);
  }
}

}  // namespace

Program allreduce(Rounds& net, const Call& call) {
  const bool together = call.buffer.bytes <= std::min(kMostTogether, net.slot_bytes());
  return together ? allreduce_together(net, call) : allreduce_by_shares(net, call);
}

Program reduce_scatter(Rounds& net, Call call) {
  const auto members = static_cast<std::size_t>(net.size());
  const auto self = static_cast<std::size_t>(net.index());
  const std::size_t piece = whole_lines_down(net.slot_bytes() / members);
  const std::vector<std::size_t> offsets = offsets_of(call.send_bytes);
  std::uint64_t rounds = 0;
  for (const std::size_t bytes : call.send_bytes) rounds = std::max(rounds, Cuts{bytes, piece}.count());
  Parts parts(net, call);
  std::uint64_t staged = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    for (; staged < rounds && staged <= round + 1; ++staged) {
      co_await net.writable(staged);
      for (std::size_t member = 0; member < members; ++member) {
        const Range range = Cuts{call.send_bytes[member], piece}[staged];
        if (member == self || range.bytes == 0) continue;
        std::memcpy(net.slot(staged) + member * piece, call.input + offsets[member] + range.offset,
                    range.bytes);
      }
      net.stage(staged);
    }
    const Range mine = Cuts{call.send_bytes[self], piece}[round];
    if (mine.bytes > 0) {
      co_await net.staged(round);
      parts.reduce(round, {self * piece, mine.bytes}, call.input + offsets[self] + mine.offset,
                   call.buffer.data() + mine.offset);
    }
    net.release(round);
  }
}

}  // namespace roundelay::collective::shm
