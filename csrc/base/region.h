// Memory that the other members of a group may access directly. A fabric can reduce it in place and need not
// copy it first.
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
  std::uint64_t key = 0;          // equal on all members; never 0
  ByteSpan own;                   // this member's memory
  std::vector<std::byte*> parts;  // all members' memory, by index; empty if only this process has access
  std::shared_ptr<void> memory;   // keeps `own` and `parts` mapped
};

using RegionPtr = std::shared_ptr<const Region>;
// Makes this member's part of a region. All members of the group call it with equal key and size, in any
// order, without waiting for each other. A member may access the others' parts once all calls have returned.
// Thread-safe. Errors: kUnavailable (no memory).
using RegionMaker = std::function<Result<RegionPtr>(std::uint64_t key, std::size_t bytes)>;

// Makes a region of zeros that only this process can access. Errors: kUnavailable (no memory).
Result<RegionPtr> make_private_region(std::uint64_t key, std::size_t bytes);
// Makes such a region on a GPU. Its memory is not cleared. Errors: kUnavailable (no memory).
Result<RegionPtr> make_gpu_region(GpuRuntime& runtime, int gpu, std::uint64_t key, std::size_t bytes);

}  // namespace roundelay
