// A GPU's collectives through pinned host memory and the group's fabric for the CPU: for whatever has no
// faster way. Works for every operation and type, with absent members, to the CPU fabric's last bit.
#pragma once

#include <cstddef>
#include <memory>

#include "base/gpu_runtime.h"
#include "collective/fabric.h"

namespace roundelay::collective {

// Allreduces (but Adasum) and broadcasts travel in pieces of this size: while one is on its way between the
// ranks, the next one comes down from the device and the one before goes up.
inline constexpr std::size_t kStagedPieceBytes = std::size_t{4} << 20;

// Calls have a stream of `device`, or this member is absent. They are carried out one after the other, and
// move only while they are tested; as long as one is in progress, nobody else starts calls on `cpu`, which
// outlives the fabric, as `runtime` does. `piece_bytes` is the same on all members.
//
// Pinned memory is kept for the next call: three pieces, and for calls of one larger part (other operations,
// Adasum, allreduces with absent members) up to twice what the last of these took.
std::unique_ptr<Fabric> make_staged_fabric(Fabric& cpu, GpuRuntime& runtime, int device,
                                           std::size_t piece_bytes = kStagedPieceBytes);

}  // namespace roundelay::collective
