// The programs for memory in a region. Members reach each other's parts there, and nothing is staged. A call
// is over when all members have read what they need of the others' parts.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "collective/shm/chunks.h"
#include "collective/shm/programs.h"
#include "kernels/kernels.h"

namespace roundelay::collective::shm {
namespace {

constexpr std::size_t kMostPiece = 128 << 10;  // few claims, and no member ends much later than the others
constexpr std::size_t kPieces = 4;             // the pieces of a large call for each member

Cuts pieces(std::size_t bytes, int members) {
  const std::size_t even = bytes / (kPieces * static_cast<std::size_t>(members));
  return {bytes, std::clamp(whole_lines_up(even), kBlock, kMostPiece)};
}

// A call's memory in the parts of all members that take part. Offsets count from its begin.
class RegionParts {
 public:
  explicit RegionParts(std::vector<std::byte*> parts) : parts_(std::move(parts)), sources_(parts_.size()) {}
  // `own` is where the memory begins in this member's part.
  RegionParts(const Rounds& net, const Region& region, const std::byte* own)
      : parts_(static_cast<std::size_t>(net.size())), sources_(parts_.size()) {
    const auto offset = own - region.own.data();
    for (std::size_t member = 0; member < parts_.size(); ++member) {
      parts_[member] =
          region.parts[static_cast<std::size_t>(net.in_group(static_cast<int>(member)))] + offset;
    }
  }

  [[nodiscard]] std::byte* at(std::size_t member, std::size_t offset) const {
    return parts_[member] + offset;
  }

  // Reduces these bytes of all parts, in the order of members, to the part of member `to`.
  void reduce(ByteRange range, const Reduction& how, std::size_t to) {
    std::transform(parts_.begin(), parts_.end(), sources_.begin(),
                   [&](std::byte* part) { return part + range.offset; });
    kernels::reduce_parts(at(to, range.offset), sources_, range.bytes / size_of(how.dtype), how.dtype,
                          how.reduce_op, how.prescale, how.scale);
  }
  // Copies these bytes from the first part to all others.
  void copy_to_all(ByteRange range) const {
    for (std::size_t member = 1; member < parts_.size(); ++member) {
      std::memcpy(at(member, range.offset), at(0, range.offset), range.bytes);
    }
  }

 private:
  std::vector<std::byte*> parts_;
  std::vector<const void*> sources_;
};

// Calls `work` with one block after the other of these bytes.
template <class Work>
void for_each_block(ByteRange range, const Work& work) {
  const Cuts blocks{range.bytes, kBlock};
  for (std::uint64_t i = 0; i < blocks.count(); ++i) {
    work(ByteRange{range.offset + blocks[i].offset, blocks[i].bytes});
  }
}

// The member that claims a piece first reduces it, and writes it to all members' parts. Every member would
// get the same bits.
void allreduce_pieces(Rounds& net, const AllreduceCall& call, RegionParts parts) {
  const Cuts work = pieces(call.buffer.bytes, net.size());
  while (const auto taken = net.claim(work.count())) {
    for_each_block(work[*taken], [&](ByteRange block) {
      parts.reduce(block, call, 0);
      parts.copy_to_all(block);
    });
  }
  net.reduce(0);
}

}  // namespace

void allreduce_placed(Rounds& net, const AllreduceCall& call, std::vector<std::byte*> parts) {
  allreduce_pieces(net, call, RegionParts(std::move(parts)));
}

Program allreduce_in_region(Rounds& net, const AllreduceCall& call) {
  RegionParts parts(net, *call.buffer.region, call.buffer.data());
  net.stage(0);
  co_await net.staged(0);
  allreduce_pieces(net, call, std::move(parts));
  co_await net.reduced(0);
}

// The others read this member's part of their shards, but not of its own.
Program reduce_scatter_in_region(Rounds& net, const ReducescatterCall& call) {
  RegionParts parts(net, *call.region, call.input);
  const auto self = static_cast<std::size_t>(net.index());
  net.stage(0);
  co_await net.staged(0);
  for_each_block({offsets_of(call.shard_bytes)[self], call.shard_bytes[self]},
                 [&](ByteRange block) { parts.reduce(block, call, self); });
  net.reduce(0);
  co_await net.reduced(0);
}

// A member writes only to its own part, and the others read only what it has given. In round 1 it says that
// it has read all.
Program all_gather_in_region(Rounds& net, const AllgatherCall& call) {
  const RegionParts parts(net, *call.region, call.output.data());
  const std::vector<std::size_t> offsets = offsets_of(call.receive_bytes);
  const auto self = static_cast<std::size_t>(net.index());
  net.stage(0);
  for (int step = 1; step < net.size(); ++step) {
    const int member = (net.index() + step) % net.size();
    const auto from = static_cast<std::size_t>(member);
    const std::size_t bytes = call.receive_bytes[from];
    if (bytes == 0) continue;
    co_await net.staged(member, 0);
    std::memcpy(parts.at(self, offsets[from]), parts.at(from, offsets[from]), bytes);
  }
  net.stage(1);
  co_await net.staged(1);
}

}  // namespace roundelay::collective::shm
