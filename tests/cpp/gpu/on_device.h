// Lets the contract of all fabrics test a GPU's fabric: a call on host memory runs on a fake device, and its
// result is copied back when the stream is done.
#pragma once

#include <memory>

#include "collective/fabric.h"
#include "tests/cpp/doubles/fake_gpu.h"

namespace roundelay::gpu_test {

// Wraps a fabric on device 0, with a stream of its own. `gpu` must outlive it. Nothing blocks, so one thread
// may step all members.
std::unique_ptr<collective::Fabric> on_device(std::unique_ptr<collective::Fabric> fabric,
                                              doubles::FakeGpu& gpu);

// Returns the device's side of a fabric that has one.
inline collective::DeviceCalls& device_calls(const collective::Fabric& fabric) {
  return *fabric.capabilities().device;
}

}  // namespace roundelay::gpu_test
