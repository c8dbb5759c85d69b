// platform/cuda on a GPU.
#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "tests/cpp/cuda/device.h"

namespace roundelay::tests {
namespace {

constexpr std::size_t kBig = std::size_t{256} << 20;

Result<bool> reached_within(const GpuEvent& event, Duration time) {
  const Deadline deadline = Deadline::at(steady_now() + time);
  while (steady_now() < deadline.when()) {
    const Result<bool> reached = event.reached();
    if (!reached.ok() || *reached) return reached;
    std::this_thread::yield();
  }
  return false;
}

TEST_CASE("a GPU has a description and an identity of its own", "[gpu]") {
  REQUIRE(require(runtime().description()).rfind("CUDA ", 0) == 0);
  const int count = require(runtime().device_count());
  REQUIRE(count >= 1);
  std::vector<std::string> identities;
  for (int device = 0; device < count; ++device) {
    identities.push_back(require(runtime().identity(device)));
    REQUIRE(identities.back().size() == 40);
    REQUIRE(std::count(identities.begin(), identities.end(), identities.back()) == 1);
  }
  REQUIRE(runtime().make_stream(count).status().code() == StatusCode::kUnavailable);
}

TEST_CASE("an event is reached when its stream's work is done, and the host does not wait for it", "[gpu]") {
  const Stream stream;
  const GpuMemory memory = require(runtime().allocate(kDevice, kBig));
  for (int i = 0; i < 50; ++i) require(runtime().zero(kDevice, memory.get(), kBig, stream));
  const GpuEventPtr event = require(runtime().mark(kDevice, stream));
  REQUIRE(!require(event->reached()));  // 12 GiB of zeros take a while
  REQUIRE(require(reached_within(*event, std::chrono::seconds(20))));
}

TEST_CASE("timestamps tell what the device took, forwards and backwards, across streams", "[gpu]") {
  const Stream stream, other;
  const GpuMemory memory = require(runtime().allocate(kDevice, kBig));
  const GpuTimestampPtr begin = require(runtime().mark_time(kDevice, stream));
  for (int i = 0; i < 50; ++i) require(runtime().zero(kDevice, memory.get(), kBig, stream));
  const GpuTimestampPtr end = require(runtime().mark_time(kDevice, stream));
  REQUIRE(end->since(*begin).status().code() == StatusCode::kUnavailable);  // 12 GiB of zeros take a while
  require(runtime().drain(kDevice, stream));
  const Duration took = require(end->since(*begin));
  REQUIRE(took > std::chrono::milliseconds(1));  // no memory is faster than 12 TB/s
  REQUIRE(took < std::chrono::seconds(20));
  REQUIRE(require(begin->since(*end)) == -took);
  const GpuTimestampPtr later = require(runtime().mark_time(kDevice, other));
  require(runtime().drain(kDevice, other));
  REQUIRE(require(later->since(*end)) > Duration{0});
}

TEST_CASE("a stream that is held back runs after the event, though its own stream is gone", "[gpu]") {
  const Stream later;
  const GpuMemory big = require(runtime().allocate(kDevice, kBig));
  const GpuMemory pinned = require(runtime().allocate_pinned(kBig));
  for (int round = 0; round < 20; ++round) {
    std::memset(pinned.get(), round + 1, kBig);
    GpuEventPtr event;
    {
      const Stream first;
      require(runtime().copy(kDevice, big.get(), pinned.get(), kBig, first));
      event = require(runtime().mark(kDevice, first));
    }
    require(event->hold_back(later));
    std::byte last{};
    require(runtime().copy(kDevice, &last, big.get() + kBig - 1, 1, later));
    require(runtime().drain(kDevice, later));
    REQUIRE(last == static_cast<std::byte>(round + 1));
  }
}

TEST_CASE("pinned memory goes to the device and back", "[gpu]") {
  const Stream stream;
  constexpr std::size_t kBytes = (4 << 20) + 3;
  const GpuMemory from = require(runtime().allocate_pinned(kBytes));
  const GpuMemory to = require(runtime().allocate_pinned(kBytes));
  const GpuMemory device = require(runtime().allocate(kDevice, kBytes));
  for (std::size_t i = 0; i < kBytes; ++i) from.get()[i] = static_cast<std::byte>(i * 31 >> 3);
  require(runtime().copy(kDevice, device.get(), from.get(), kBytes, stream));
  require(runtime().copy(kDevice, to.get(), device.get(), kBytes, stream));
  require(runtime().drain(kDevice, stream));
  REQUIRE(std::memcmp(from.get(), to.get(), kBytes) == 0);
}

TEST_CASE("too much memory is an error, after which the device goes on", "[gpu]") {
  const Result<GpuMemory> much = runtime().allocate(kDevice, std::size_t{1} << 46);
  REQUIRE(much.status().code() == StatusCode::kUnavailable);
  REQUIRE(much.status().message() == "cudaMalloc: out of memory");
  const Stream stream;
  const GpuMemory little = require(runtime().allocate(kDevice, 1024));
  require(runtime().zero(kDevice, little.get(), 1024, stream));
  require(runtime().drain(kDevice, stream));
}

TEST_CASE("events are marked, asked and dropped from many threads", "[gpu]") {
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const Result<GpuStream> stream = runtime().make_stream(kDevice);
      if (!stream.ok()) return void(++failed);
      for (int i = 0; i < 2000; ++i) {
        const Result<GpuEventPtr> event = runtime().mark(kDevice, *stream);
        if (!event.ok() || !(*event)->reached().ok() || !(*event)->hold_back(nullptr).ok()) ++failed;
      }
      runtime().free_stream(kDevice, *stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(failed == 0);
}

}  // namespace
}  // namespace roundelay::tests
