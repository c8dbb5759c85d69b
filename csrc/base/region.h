// Memory of this rank that the other members of its group may reach, too: a fabric need not bring its bytes
// to where they are reduced.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/gpu_runtime.h"
#include "base/status.h"

namespace roundelay {

struct Region {
  std::uint64_t key = 0;          // the same on all members; not 0
  ByteSpan own;                   // this member's part, zeros at first
  std::vector<std::byte*> parts;  // everyone's, by member; empty where only this process reaches `own`
  std::shared_ptr<void> memory;   // until the last user has gone
};

using RegionPtr = std::shared_ptr<const Region>;
// For one group: members make regions of equal key and size, each by itself, in any order. A member's part
// may be used when all have made theirs. Thread-safe. Errors: kUnavailable (no memory).
using RegionMaker = std::function<Result<RegionPtr>(std::uint64_t key, std::size_t bytes)>;

// Reached by this process alone.
Result<RegionPtr> make_private_region(std::uint64_t key, std::size_t bytes);
// On a GPU, likewise; whatever was there before is in it.
Result<RegionPtr> make_gpu_region(GpuRuntime& runtime, int gpu, std::uint64_t key, std::size_t bytes);

}  // namespace roundelay
