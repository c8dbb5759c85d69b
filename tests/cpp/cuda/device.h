// The real GPU.
#pragma once

#include <cstring>
#include <span>

#include "base/bytes.h"
#include "kernels/cuda/kernels.h"
#include "platform/cuda/runtime.h"
#include "tests/cpp/catch.h"

namespace roundelay::tests {

inline constexpr int kDevice = 0;

inline platform::cuda::CudaRuntime& runtime() {
  static auto& runtime = *new platform::cuda::CudaRuntime;
  return runtime;
}
inline kernels::GpuKernels& kernels() {
  static auto& kernels = *new kernels::cuda::CudaKernels;
  return kernels;
}

inline void require(const Status& status) {
  INFO(status.message());
  REQUIRE(status.ok());
}
template <typename T>
T require(Result<T> result) {
  require(result.status());
  return std::move(result).value();
}

class Stream {
 public:
  Stream() : stream_(require(runtime().make_stream(kDevice))) {}
  ~Stream() { runtime().free_stream(kDevice, stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  // NOLINTNEXTLINE(google-explicit-constructor): a test's stream is used as the stream
  operator GpuStream() const { return stream_; }

 private:
  GpuStream stream_;
};

// Bytes on the device between guards. The address is `shift` bytes after an aligned one.
class DeviceBytes {
 public:
  explicit DeviceBytes(const Bytes& bytes, std::size_t shift = 0)
      : bytes_(bytes.size()), shift_(shift), memory_(require(runtime().allocate(kDevice, whole()))) {
    Bytes host(whole(), kMark);
    std::copy(bytes.begin(), bytes.end(), host.begin() + static_cast<std::ptrdiff_t>(kGuard + shift));
    require(runtime().copy(kDevice, memory_.get(), host.data(), host.size(), nullptr));
    require(runtime().drain(kDevice, nullptr));
  }
  [[nodiscard]] std::byte* data() const { return memory_.get() + kGuard + shift_; }
  // Waits for `stream` and returns the bytes. Fails the test if a guard was overwritten.
  [[nodiscard]] Bytes read(GpuStream stream) const {
    Bytes host(whole());
    require(runtime().drain(kDevice, stream));
    require(runtime().copy(kDevice, host.data(), memory_.get(), host.size(), nullptr));
    require(runtime().drain(kDevice, nullptr));
    const auto marked = [](std::byte byte) { return byte == kMark; };
    const auto begin = host.begin() + static_cast<std::ptrdiff_t>(kGuard + shift_);
    const auto end = begin + static_cast<std::ptrdiff_t>(bytes_);
    REQUIRE((std::all_of(host.begin(), begin, marked) && std::all_of(end, host.end(), marked)));
    return {begin, end};
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr std::byte kMark{0xa5};
  [[nodiscard]] std::size_t whole() const { return bytes_ + shift_ + 2 * kGuard; }
  std::size_t bytes_;
  std::size_t shift_;
  GpuMemory memory_;
};

}  // namespace roundelay::tests
