// What a question where memory lies costs on a GPU's machine, and what a sum in device memory costs against
// one that goes over the host. Prints one object of JSON.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

#include "benchmarks/gpu/checked.h"
#include "benchmarks/pointer_questions.h"
#include "kernels/cuda/kernels.h"
#include "kernels/kernels.h"
#include "platform/cuda/runtime.h"

namespace roundelay {
namespace {

using benchmarks::check;

constexpr int kDevice = 0;
constexpr std::size_t kAllocations = 64;

void questions(platform::cuda::CudaRuntime& runtime) {
  std::vector<GpuMemory> memory;
  std::vector<const void*> addresses;
  for (std::size_t i = 0; i < kAllocations; ++i) {
    memory.push_back(check(runtime.allocate(kDevice, 1 << 20)));
    addresses.push_back(memory.back().get() + i * 4096);
  }
  benchmarks::print_questions("CUDA", runtime, addresses);
}

// Returns the median seconds of some work and the wait for it.
double seconds(const std::function<void()>& work) {
  std::vector<double> rounds;
  for (int round = 0; round < 21; ++round) {
    const TimePoint begin = steady_now();
    work();
    rounds.push_back(std::chrono::duration<double>(steady_now() - begin).count());
  }
  std::nth_element(rounds.begin(), rounds.begin() + 10, rounds.end());
  return rounds[10];
}

// Adds a vector on the device to another one there: by a kernel, and by copies to the host, the host's sum,
// and a copy back. GB of one vector a second.
void sums(platform::cuda::CudaRuntime& runtime) {
  kernels::cuda::CudaKernels kernels;
  const GpuStream stream = check(runtime.make_stream(kDevice));
  std::printf("\"sums\": [");
  const char* separator = "";
  for (const std::size_t bytes : {std::size_t{4} << 10, std::size_t{256} << 10, std::size_t{64} << 20}) {
    const GpuMemory own = check(runtime.allocate(kDevice, bytes)),
                    other = check(runtime.allocate(kDevice, bytes));
    const GpuMemory here = check(runtime.allocate_pinned(bytes)),
                    there = check(runtime.allocate_pinned(bytes));
    const std::size_t count = bytes / sizeof(float);
    check(runtime.zero(kDevice, own.get(), bytes, stream));
    check(runtime.zero(kDevice, other.get(), bytes, stream));
    const double on_device = seconds([&] {
      const std::byte* const parts[] = {own.get(), other.get()};
      check(kernels.reduce_parts(kDevice, own.get(), parts, count, DType::kFloat32, ReduceOp::kSum, {}, {},
                                 stream));
      check(runtime.drain(kDevice, stream));
    });
    const double over_host = seconds([&] {
      check(runtime.copy(kDevice, here.get(), own.get(), bytes, stream));
      check(runtime.copy(kDevice, there.get(), other.get(), bytes, stream));
      check(runtime.drain(kDevice, stream));
      kernels::reduce(here.get(), there.get(), count, DType::kFloat32, ReduceOp::kSum);
      check(runtime.copy(kDevice, own.get(), here.get(), bytes, stream));
      check(runtime.drain(kDevice, stream));
    });
    std::printf("%s{\"bytes\": %zu, \"device_gb_per_s\": %.2f, \"host_gb_per_s\": %.2f}", separator, bytes,
                1e-9 * static_cast<double>(bytes) / on_device, 1e-9 * static_cast<double>(bytes) / over_host);
    separator = ", ";
  }
  std::printf("]}\n");
  runtime.free_stream(kDevice, stream);
}

}  // namespace
}  // namespace roundelay

int main() {
  roundelay::platform::cuda::CudaRuntime runtime;
  std::printf("{\"questions\": ");
  roundelay::questions(runtime);
  std::printf(",\n");
  roundelay::sums(runtime);
  return 0;
}
