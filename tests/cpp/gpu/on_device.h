// A GPU's fabric as the contract of all fabrics sees it: calls on host memory are carried out on a fake
// device, and brought back when its stream is there.
#pragma once

#include <memory>

#include "collective/fabric.h"
#include "tests/cpp/doubles/fake_gpu.h"

namespace roundelay::gpu_test {

// On device 0, in a stream of its own. `gpu` outlives it. Nothing blocks: one thread may step all members.
std::unique_ptr<collective::Fabric> on_device(std::unique_ptr<collective::Fabric> fabric,
                                              doubles::FakeGpu& gpu);

// Returns the device's side of a fabric that has one.
inline collective::DeviceCalls& device_calls(const collective::Fabric& fabric) {
  return *fabric.capabilities().device;
}

}  // namespace roundelay::gpu_test
