#include <algorithm>
#include <cstring>
#include <vector>

#include "collective/shm/chunks.h"
#include "collective/shm/programs.h"
#include "kernels/kernels.h"

namespace roundelay::collective::shm {
namespace {

constexpr std::size_t kMostTogether = 8 << 10;  // up to here each member sums up all parts itself

using Run = ScatterList::Run;

// Reduces the same bytes of all members, in the order of members: this member's where they lie, the others'
// from their slots or their heaps.
class Parts {
 public:
  Parts(const Rounds& net, const Reduction& how)
      : net_(net), how_(how), parts_(static_cast<std::size_t>(net.size())), placed_(parts_.size(), nullptr) {}

  // Looks which members' bytes are in heaps, when all have staged round 0.
  void look() {
    for (std::size_t member = 0; member < placed_.size(); ++member) {
      placed_[member] = net_.placed(static_cast<int>(member));
    }
  }
  // The members' bytes in heaps; null: in slots.
  [[nodiscard]] const std::vector<std::byte*>& placed() const { return placed_; }

  // `range` is a part of the slots, which have the chunk from `chunk` on. `to` may be `own`.
  void reduce(std::uint64_t round, std::size_t chunk, ByteRange range, const std::byte* own, std::byte* to) {
    for (int member = 0; member < net_.size(); ++member) {
      const auto at = static_cast<std::size_t>(member);
      const std::byte* const theirs =
          placed_[at] != nullptr ? placed_[at] + chunk : net_.slot_of(member, round);
      parts_[at] = member == net_.index() ? own : theirs + range.offset;
    }
    kernels::reduce_parts(to, parts_, range.bytes / size_of(how_.dtype), how_.dtype, how_.reduce_op,
                          how_.prescale, how_.scale);
  }

 private:
  const Rounds& net_;
  const Reduction& how_;
  std::vector<const void*> parts_;
  std::vector<std::byte*> placed_;
};

// The chunk of the list that travels in one round, from the beginning of the slots on. A `range` is a part of
// it.
class Chunk {
 public:
  Chunk(const ScatterList& list, ByteRange chunk) : list_(list), chunk_(chunk) {}

  void copy_in(Rounds& net, std::uint64_t round, ByteRange range) const {
    list_.for_each(chunk_.offset + range.offset, range.bytes, [&](std::size_t at, const Run& run) {
      net.put(round, range.offset + at, run.input, run.bytes);
    });
  }
  void copy_out(const std::byte* slot, ByteRange range) const {
    list_.for_each(chunk_.offset + range.offset, range.bytes, [&](std::size_t at, const Run& run) {
      std::memcpy(run.output, slot + range.offset + at, run.bytes);
    });
  }
  // Reduces to the outputs, and copies the result to the slot for the others.
  void reduce(Rounds& net, std::uint64_t round, Parts& parts, ByteRange range) const {
    list_.for_each(chunk_.offset + range.offset, range.bytes, [&](std::size_t at, const Run& run) {
      const ByteRange in_slot{range.offset + at, run.bytes};
      parts.reduce(round, chunk_.offset, in_slot, run.input, run.output);
      net.put(round, in_slot.offset, run.output, run.bytes);
    });
  }

 private:
  const ScatterList& list_;
  const ByteRange chunk_;
};

// Puts into the slot what the others reduce of this member's part of a round: all but `mine`.
void copy_for_others(Rounds& net, std::uint64_t round, const Chunk& chunk, ByteRange mine,
                     std::size_t bytes) {
  const std::size_t end = mine.offset + mine.bytes;
  chunk.copy_in(net, round, {0, mine.offset});
  chunk.copy_in(net, round, {end, bytes - end});
}

void reduce_share(Rounds& net, std::uint64_t round, Parts& parts, const Chunk& chunk, ByteRange mine) {
  const Cuts blocks{mine.bytes, kBlock};
  for (std::uint64_t i = 0; i < blocks.count(); ++i) {
    chunk.reduce(net, round, parts, {mine.offset + blocks[i].offset, blocks[i].bytes});
  }
  net.reduce(round);
}

ScatterList in_place(const Buffer& buffer) {
  ScatterList list;
  list.add({buffer.data(), buffer.data(), buffer.bytes});
  return list;
}

Program allreduce_together(Rounds& net, const AllreduceCall& call) {
  const ScatterList whole = in_place(call.buffer);
  const ScatterList& list = call.scattered != nullptr ? *call.scattered : whole;
  Parts parts(net, call);
  co_await net.writable(0);
  Chunk(list, {0, list.bytes()}).copy_in(net, 0, {0, list.bytes()});
  net.stage(0);
  co_await net.staged(0);
  list.for_each(0, list.bytes(), [&](std::size_t at, const Run& run) {
    parts.reduce(0, 0, {at, run.bytes}, run.input, run.output);
  });
}

Program allreduce_by_shares(Rounds& net, const AllreduceCall& call) {
  const ScatterList whole = in_place(call.buffer);
  const ScatterList& list = call.scattered != nullptr ? *call.scattered : whole;
  const Cuts chunks{list.bytes(), net.slot_bytes()};
  const auto self = static_cast<std::uint64_t>(net.index());
  const bool placed = call.scattered == nullptr && net.place({call.buffer.data(), call.buffer.bytes});
  Parts parts(net, call);
  std::uint64_t staged = 0;
  for (std::uint64_t round = 0; round < chunks.count(); ++round) {
    // Stages the next round's part before the wait for this round.
    for (; staged < chunks.count() && staged <= round + 1; ++staged) {
      co_await net.writable(staged);
      const ByteRange chunk = chunks[staged];
      const ByteRange mine = shares(chunk.bytes, net.size())[self];
      if (!placed) copy_for_others(net, staged, Chunk(list, chunk), mine, chunk.bytes);
      net.stage(staged);
    }
    const Chunk chunk(list, chunks[round]);
    const Cuts share = shares(chunks[round].bytes, net.size());
    co_await net.staged(round);
    if (round == 0) {
      parts.look();
      if (std::ranges::find(parts.placed(), nullptr) == parts.placed().end()) {
        allreduce_placed(net, call, parts.placed());
        co_await net.reduced(0);
        co_return;
      }
    }
    reduce_share(net, round, parts, chunk, share[self]);
    for (int step = 1; step < net.size(); ++step) {
      const int member = (net.index() + step) % net.size();
      co_await net.reduced(member, round);
      chunk.copy_out(net.slot_of(member, round), share[static_cast<std::uint64_t>(member)]);
    }
    net.release(round);
  }
}

}  // namespace

Program allreduce(Rounds& net, const AllreduceCall& call) {
  const bool together = call.buffer.bytes <= std::min(kMostTogether, net.slot_bytes());
  return together ? allreduce_together(net, call) : allreduce_by_shares(net, call);
}

Program reduce_scatter(Rounds& net, const ReducescatterCall& call) {
  const auto members = static_cast<std::size_t>(net.size());
  const auto self = static_cast<std::size_t>(net.index());
  const std::size_t piece = whole_lines_down(net.slot_bytes() / members);
  const std::vector<std::size_t> offsets = offsets_of(call.shard_bytes);
  std::uint64_t rounds = 0;
  for (const std::size_t bytes : call.shard_bytes) rounds = std::max(rounds, Cuts{bytes, piece}.count());
  Parts parts(net, call);
  std::uint64_t staged = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    for (; staged < rounds && staged <= round + 1; ++staged) {
      co_await net.writable(staged);
      for (std::size_t member = 0; member < members; ++member) {
        const ByteRange range = Cuts{call.shard_bytes[member], piece}[staged];
        if (member == self || range.bytes == 0) continue;
        net.put(staged, member * piece, call.input + offsets[member] + range.offset, range.bytes);
      }
      net.stage(staged);
    }
    const ByteRange mine = Cuts{call.shard_bytes[self], piece}[round];
    if (mine.bytes > 0) {
      co_await net.staged(round);
      parts.reduce(round, 0, {self * piece, mine.bytes}, call.input + offsets[self] + mine.offset,
                   call.output.data() + mine.offset);
    }
    net.release(round);
  }
}

}  // namespace roundelay::collective::shm
