// The data plane on GPUs through pinned host memory and the group's fabric for the CPU, where there is no
// faster one. It carries out every operation and type, with absent members too, and gives the bits of the
// CPU's fabric.
#pragma once

#include <cstddef>
#include <memory>

#include "base/gpu_runtime.h"
#include "collective/fabric.h"

namespace roundelay::collective {

// Allreduces (but Adasum) and broadcasts travel in pieces of this size. While one travels between the ranks,
// the next one comes down from the device and the one before goes up.
inline constexpr std::size_t kStagedPieceBytes = std::size_t{4} << 20;

// Makes the fabric. Its calls have a stream of `device`, or this member is absent. They are carried out one
// after the other, and move only while they are tested. While one is in progress, nobody else may start calls
// on `cpu`. `cpu` and `runtime` outlive the fabric. `piece_bytes` is the same on all members.
//
// The fabric keeps pinned memory for the next call: three pieces, and for calls that are not cut (other
// operations, Adasum, allreduces with absent members) up to twice what the last of these took.
std::unique_ptr<Fabric> make_staged_fabric(Fabric& cpu, GpuRuntime& runtime, int device,
                                           std::size_t piece_bytes = kStagedPieceBytes);

}  // namespace roundelay::collective
