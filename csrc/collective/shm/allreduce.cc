#include <cstring>
#include <vector>

#include "collective/shm/chunks.h"
#include "collective/shm/programs.h"
#include "kernels/kernels.h"

namespace roundelay::collective::shm {
namespace {

constexpr std::size_t kMostTogether = 8 << 10;  // that each member had better sum up by itself

// The same bytes of all members' slots of a round, in the order of members.
class Parts {
 public:
  explicit Parts(const Rounds& net) : net_(net), parts_(static_cast<std::size_t>(net.size())) {}

  void reduce(const Call& call, std::uint64_t round, Range range, std::byte* to) {
    for (int member = 0; member < net_.size(); ++member) {
      parts_[static_cast<std::size_t>(member)] = net_.slot_of(member, round) + range.offset;
    }
    const std::size_t count = range.bytes / size_of(call.dtype);
    kernels::reduce_parts(to, parts_, count, call.dtype, call.reduce_op, call.prescale, call.scale);
  }

 private:
  const Rounds& net_;
  std::vector<const void*> parts_;
};

}  // namespace

Program allreduce(Rounds& net, Call call) {
  std::byte* const buffer = call.buffer.data();
  const Cuts chunks{call.buffer.bytes, Segment::kSlotBytes};
  const std::uint64_t rounds = chunks.count();
  Parts parts(net);
  std::uint64_t staged = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    // The next round's part is staged before this one is waited for.
    for (; staged < rounds && staged <= round + 1; ++staged) {
      co_await net.writable(staged);
      std::memcpy(net.slot(staged), buffer + chunks[staged].offset, chunks[staged].bytes);
      net.stage(staged);
    }
    const Range chunk = chunks[round];
    std::byte* const to = buffer + chunk.offset;
    co_await net.staged(round);
    if (call.buffer.bytes <= kMostTogether) {
      parts.reduce(call, round, {0, chunk.bytes}, to);
      co_return;
    }
    const Cuts share = shares(chunk.bytes, net.size());
    const Range mine = share[static_cast<std::uint64_t>(net.index())];
    parts.reduce(call, round, mine, net.slot(round) + mine.offset);
    net.reduce(round);
    for (int step = 0; step < net.size(); ++step) {
      const int member = (net.index() + step) % net.size();
      co_await net.reduced(member, round);
      const Range theirs = share[static_cast<std::uint64_t>(member)];
      std::memcpy(to + theirs.offset, net.slot_of(member, round) + theirs.offset, theirs.bytes);
    }
    net.release(round);
  }
}

Program reduce_scatter(Rounds& net, Call call) {
  const auto members = static_cast<std::size_t>(net.size());
  const auto self = static_cast<std::size_t>(net.index());
  const std::size_t piece = whole_lines_down(Segment::kSlotBytes / members);
  std::vector<std::size_t> offsets(members);
  std::uint64_t rounds = 0;
  for (std::size_t member = 0; member < members; ++member) {
    if (member > 0) offsets[member] = offsets[member - 1] + call.send_bytes[member - 1];
    rounds = std::max(rounds, Cuts{call.send_bytes[member], piece}.count());
  }
  Parts parts(net);
  std::uint64_t staged = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    for (; staged < rounds && staged <= round + 1; ++staged) {
      co_await net.writable(staged);
      for (std::size_t member = 0; member < members; ++member) {
        const Range range = Cuts{call.send_bytes[member], piece}[staged];
        if (range.bytes == 0) continue;
        std::memcpy(net.slot(staged) + member * piece, call.input + offsets[member] + range.offset,
                    range.bytes);
      }
      net.stage(staged);
    }
    const Range mine = Cuts{call.send_bytes[self], piece}[round];
    if (mine.bytes > 0) {
      co_await net.staged(round);
      parts.reduce(call, round, {self * piece, mine.bytes}, call.buffer.data() + mine.offset);
    }
    net.release(round);
  }
}

}  // namespace roundelay::collective::shm
