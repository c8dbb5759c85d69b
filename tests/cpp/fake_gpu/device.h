// PyTorch's device "fakegpu" (PrivateUse1) over the fake device of tests/cpp/doubles, for Python tests of
// what happens on GPUs, in real processes. What torch computes there is written late, in the stream's turn.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <functional>

#include "base/status.h"
#include "tests/cpp/doubles/fake_gpu.h"

namespace roundelay::fake_gpu {

// This process's. How many devices, how late and with which seed: FAKE_GPU_DEVICES, FAKE_GPU_DELAY_US,
// FAKE_GPU_SEED.
doubles::FakeGpu& gpu();
int device_count();

// Of the calling thread.
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex index);
c10::Stream current_stream(c10::DeviceIndex index);
c10::Stream exchange_current_stream(c10::Stream stream);

// Stream 0 is a device's default stream; others live as long as the process.
c10::Stream new_stream(c10::DeviceIndex index);
GpuStream native(const c10::Stream& stream);
GpuEventPtr mark(const c10::Stream& stream);
// Blocks until all that is in the stream is done.
void drain(const c10::Stream& stream);
void enqueue(const c10::Stream& stream, std::function<void()> work);

// As CUDA's caching allocator: what is freed is given out again at once, in the same stream.
c10::Allocator* allocator();
// Blocks that nobody holds go back to the device, when all that was enqueued is done.
void empty_cache();
void record_on_stream(const c10::DataPtr& data, const c10::Stream& stream);

// As torch throws.
void check(const Status& status);
template <typename T>
T value_of(Result<T> result) {
  check(result.status());
  return std::move(result).value();
}

}  // namespace roundelay::fake_gpu
