// The data plane on GPUs by NCCL. A call is over when its work is enqueued to its stream; the host never
// waits for the device.
//
// Another fabric carries out what NCCL cannot do as the CPU does it: Adasum, calls with absent members,
// scaled integers except averages, scaled booleans. NCCL's arithmetic differs from the CPU's as follows,
// where u is half an ulp of the element type, relative to the sum of the absolute parts:
// - sums are rounded at each addition, in an order of NCCL's own: (members - 1) u, all members alike;
// - fp32, fp64: an average is NCCL's own: each part times a rounded factor, rounded: 2 u more;
// - fp16, bf16: an average over a power of two of members is NCCL's own, whose parts are exact but for
//   subnormals; otherwise the sum, which may leave the range of fp16, is divided and rounded (1 u);
// - minimum and maximum need not pass on a NaN;
// - products are rounded at each step, as on the CPU, in NCCL's order.
//
// Integers' and booleans' results are the CPU's, bit for bit. Booleans are bytes of 0 or 1.
//
// It keeps scratch memory on the device, as large as its largest call needed: an int16, or an average of
// integers, needs its elements widened; a reduce-scatter with unequal shards, or with a prescale, needs its
// input again.
#pragma once

#include <memory>

#include "base/gpu_runtime.h"
#include "collective/fabric.h"
#include "kernels/gpu.h"
#include "platform/nccl/api.h"

namespace roundelay::collective {

struct NcclFabricParts {
  Group group;
  std::unique_ptr<platform::NcclCommunicator> communicator;  // ready, with the group's members and indices
  GpuRuntime& runtime;
  kernels::GpuKernels& kernels;
  int device;
  Fabric& staged;  // carries out all that NCCL cannot do, on the same thread
};

// Makes the fabric. The references in `parts` outlive it.
std::unique_ptr<Fabric> make_nccl_fabric(NcclFabricParts parts);

}  // namespace roundelay::collective
