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
  std::uint64_t key = 0;  // the number with which all members made it; 0: this one has made it for itself
  ByteSpan own;           // this member's memory
  // The world ranks that reach each other's memory, as in their Group, and the memory of each. Empty if only
  // this process has access.
  std::vector<int> ranks;
  std::vector<std::byte*> parts;
  std::shared_ptr<void> memory;  // keeps `own` and `parts` mapped

  // Returns whether these bytes lie in this member's memory.
  [[nodiscard]] bool holds(ConstByteSpan bytes) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
    const auto first = reinterpret_cast<std::uintptr_t>(own.data());
    return begin >= first && begin - first <= own.size() && bytes.size() <= own.size() - (begin - first);
  }
};

using RegionPtr = std::shared_ptr<const Region>;
// Makes this member's part of a region, of zeros. All members of the group call it with equal key and size,
// in any order, without waiting for each other. Those of `Region::ranks` may access each other's parts once
// all calls have returned. With key 0 a member makes memory for itself, of any size: a fabric within a node
// reaches it in calls. Thread-safe. Errors: kUnavailable (no memory).
using RegionMaker = std::function<Result<RegionPtr>(std::uint64_t key, std::size_t bytes)>;

// Makes a region of zeros that only this process can access. Errors: kUnavailable (no memory).
Result<RegionPtr> make_private_region(std::uint64_t key, std::size_t bytes);
// Makes such a region on a GPU. Its memory is not cleared. Errors: kUnavailable (no memory).
Result<RegionPtr> make_gpu_region(GpuRuntime& runtime, int gpu, std::uint64_t key, std::size_t bytes);

}  // namespace roundelay
