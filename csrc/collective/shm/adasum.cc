#include <cstring>
#include <utility>
#include <vector>

#include "collective/algorithms/doubling.h"
#include "collective/shm/chunks.h"
#include "collective/shm/programs.h"
#include "kernels/kernels.h"

namespace roundelay::collective::shm {
namespace {

// The work of a member at one level. All members have as many levels.
struct Level {
  bool gives = false;
  int takes_from = -1;  // -1: from no member
  bool merges = true;   // false: the vector that it takes replaces its own
};

std::vector<Level> levels_of(int index, int size) {
  const Doubling doubling(size);
  const bool gives_away = doubling.gives_away(index), keeps = doubling.in_pair(index) && !gives_away;
  std::vector<Level> levels;
  if (doubling.folded > 0) levels.push_back({gives_away, keeps ? index + 1 : -1});
  for (int distance = 1; distance < doubling.members; distance *= 2) {
    levels.push_back(gives_away ? Level{} : Level{true, doubling.partner(index, distance)});
  }
  if (doubling.folded > 0) levels.push_back({keeps, gives_away ? index - 1 : -1, false});
  return levels;
}

}  // namespace

Program adasum(Rounds& net, const AllreduceCall& call) {
  const DType dtype = working_type(call);
  const std::size_t count = call.buffer.bytes / size_of(call.dtype);
  const Cuts chunks{count * size_of(dtype), net.slot_bytes()};
  std::byte* const buffer = call.buffer.data();
  std::byte* mine = net.scratch(chunks.bytes);
  std::byte* other = net.scratch(chunks.bytes);
  kernels::scale_copy(buffer, buffer, count, call.dtype, call.prescale);
  kernels::cast(mine, dtype, buffer, call.dtype, count);
  const std::vector<Level> levels = levels_of(net.index(), net.size());
  std::uint64_t round = 0;
  for (const Level level : levels) {
    for (std::uint64_t chunk = 0; chunk < chunks.count(); ++chunk, ++round) {
      const ByteRange range = chunks[chunk];
      if (level.gives) {
        co_await net.writable(round);
        net.put(round, 0, mine + range.offset, range.bytes);
        net.stage(round);
      }
      if (level.takes_from >= 0) {
        co_await net.staged(level.takes_from, round);
        std::memcpy(other + range.offset, net.slot_of(level.takes_from, round), range.bytes);
      }
      net.release(round);
    }
    if (level.takes_from < 0) continue;
    // Both sides compute "lower op higher", so that they get the same bits.
    if (net.index() > level.takes_from) std::swap(mine, other);
    if (level.merges) merge(call, mine, other, count);
  }
  kernels::cast(buffer, call.dtype, mine, dtype, count);
  kernels::scale_copy(buffer, buffer, count, call.dtype, call.scale);
}

}  // namespace roundelay::collective::shm
