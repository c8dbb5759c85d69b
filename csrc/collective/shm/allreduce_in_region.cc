#include <algorithm>
#include <cstring>
#include <vector>

#include "collective/shm/chunks.h"
#include "collective/shm/programs.h"
#include "kernels/kernels.h"

namespace roundelay::collective::shm {
namespace {

constexpr std::size_t kMostPiece = 128 << 10;  // few claims, and no member ends much later than the others
constexpr std::size_t kPieces = 4;             // a large call has so many pieces for each member

Cuts pieces(std::size_t bytes, int members) {
  const std::size_t even = bytes / (kPieces * static_cast<std::size_t>(members));
  return {bytes, std::clamp(whole_lines_up(even), kBlock, kMostPiece)};
}

}  // namespace

Program allreduce_in_region(Rounds& net, const AllreduceCall& call) {
  const Region& region = *call.buffer.region;
  std::vector<std::byte*> parts(static_cast<std::size_t>(net.size()));
  for (std::size_t member = 0; member < parts.size(); ++member) {
    const int in_group = net.in_group(static_cast<int>(member));
    parts[member] = region.parts[static_cast<std::size_t>(in_group)] + call.buffer.offset;
  }
  std::vector<const void*> sources(parts.size());
  net.stage(0);
  co_await net.staged(0);
  const Cuts work = pieces(call.buffer.bytes, net.size());
  while (const auto taken = net.claim(work.count())) {
    const ByteRange piece = work[*taken];
    const Cuts blocks{piece.bytes, kBlock};
    for (std::uint64_t i = 0; i < blocks.count(); ++i) {
      const std::size_t offset = piece.offset + blocks[i].offset;
      std::transform(parts.begin(), parts.end(), sources.begin(),
                     [&](std::byte* part) { return part + offset; });
      std::byte* const sum = parts.front() + offset;
      kernels::reduce_parts(sum, sources, blocks[i].bytes / size_of(call.dtype), call.dtype, call.reduce_op,
                            call.prescale, call.scale);
      for (std::size_t member = 1; member < parts.size(); ++member) {
        std::memcpy(parts[member] + offset, sum, blocks[i].bytes);
      }
    }
  }
  net.reduce(0);
  for (int member = 0; member < net.size(); ++member) co_await net.reduced(member, 0);
}

}  // namespace roundelay::collective::shm
