// PyTorch's device "fakegpu" (PrivateUse1) on the fake device of tests/cpp/doubles. Python tests use it to
// run GPU code in real processes. Results of torch's operators appear late, when their stream reaches them.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <functional>

#include "base/status.h"
#include "tests/cpp/doubles/fake_gpu.h"

namespace roundelay::fake_gpu {

// Returns this process's device. FAKE_GPU_DEVICES, FAKE_GPU_DELAY_US and FAKE_GPU_SEED set the number of
// devices, the delays and their seed.
doubles::FakeGpu& gpu();
int device_count();

// The calling thread's device and streams.
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex index);
c10::Stream current_stream(c10::DeviceIndex index);
c10::Stream exchange_current_stream(c10::Stream stream);

// Streams. Stream 0 is a device's default stream; others live as long as the process.
c10::Stream new_stream(c10::DeviceIndex index);
GpuStream native(const c10::Stream& stream);
GpuEventPtr mark(const c10::Stream& stream);
// Blocks until all work in the stream is done.
void drain(const c10::Stream& stream);
void enqueue(const c10::Stream& stream, std::function<void()> work);

// Reuses freed memory at once in the same stream, as CUDA's caching allocator does.
c10::Allocator* allocator();
// Returns unused blocks to the device when all enqueued work is done.
void empty_cache();
void record_on_stream(const c10::DataPtr& data, const c10::Stream& stream);

// Throw torch's exception for an error.
void check(const Status& status);
template <typename T>
T value_of(Result<T> result) {
  check(result.status());
  return std::move(result).value();
}

}  // namespace roundelay::fake_gpu
