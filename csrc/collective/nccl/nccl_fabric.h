// The data plane on GPUs by NCCL. A call is done when its place in the stream is fixed; nothing waits for the
// device.
//
// What NCCL cannot do as the CPU does it (Adasum, absent members, scaled integers but averages, scaled
// booleans) is handed to another fabric. Where NCCL's arithmetic is another than the CPU's, u being half an
// ulp of the element type, relative to the sum of the absolute parts:
// - sums are rounded at each addition, in an order of NCCL's own: (members - 1) u, all members alike;
// - fp32, fp64: an average is NCCL's own: each part times a rounded factor, rounded: 2 u more;
// - fp16, bf16: an average over a power of two of members is NCCL's own, whose parts are exact but for
//   subnormals; otherwise the sum, which may leave the range of fp16, is divided and rounded (1 u);
// - minimum and maximum need not pass on a NaN;
// - products are rounded at each step, as on the CPU, in NCCL's order.
// Integers' and booleans' results are the CPU's, bit for bit. Booleans are bytes of 0 or 1.
//
// Scratch memory on the device, kept, as large as the largest call needed: of an int16, or an average of
// integers: the elements widened; of a reduce-scatter with unequal shards or prescaled: its input.
#pragma once

#include <memory>

#include "base/gpu_runtime.h"
#include "collective/fabric.h"
#include "kernels/gpu.h"
#include "platform/nccl/api.h"

namespace roundelay::collective {

struct NcclFabricParts {
  Group group;
  std::unique_ptr<platform::NcclCommunicator> communicator;  // settled, of the group's members and indices
  GpuRuntime& runtime;
  kernels::GpuKernels& kernels;
  int device;
  Fabric& staged;  // for all that NCCL cannot do; the same thread drives both
};

// What it refers to outlives it.
std::unique_ptr<Fabric> make_nccl_fabric(NcclFabricParts parts);

}  // namespace roundelay::collective
