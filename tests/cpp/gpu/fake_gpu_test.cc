// The fake device keeps the promises of its interfaces, and detects the errors that it must detect.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <future>
#include <numeric>

#include "kernels/kernels.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/doubles/fake_gpu.h"

namespace roundelay::doubles {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kRacesAreErrors = true;
#else
constexpr bool kRacesAreErrors = false;
#endif

template <typename T>
T* as(const GpuMemory& memory) {
  return reinterpret_cast<T*>(memory.get());
}

GpuMemory device_memory(FakeGpu& gpu, std::size_t bytes, int device = 0) {
  auto memory = gpu.allocate(device, bytes);
  REQUIRE(memory.ok());
  return *memory;
}

GpuMemory pinned_memory(FakeGpu& gpu, std::size_t bytes) {
  auto memory = gpu.allocate_pinned(bytes);
  REQUIRE(memory.ok());
  return *memory;
}

GpuStream new_stream(FakeGpu& gpu, int device = 0) {
  auto stream = gpu.make_stream(device);
  REQUIRE(stream.ok());
  return *stream;
}

GpuEventPtr event_behind(FakeGpu& gpu, GpuStream stream) {
  auto event = gpu.mark(0, stream);
  REQUIRE(event.ok());
  return *event;
}

// Sends bytes through a chain of buffers by two streams in turn. Returns whether they arrive.
bool chain_is_right(unsigned seed, bool wait_for_events) {
  FakeGpu gpu({.seed = seed});
  constexpr std::size_t kBytes = 64, kLinks = 9;
  std::vector<GpuMemory> links;
  for (std::size_t i = 0; i < kLinks; ++i) links.push_back(pinned_memory(gpu, kBytes));
  std::fill_n(links.front().get(), kBytes, std::byte{7});
  const GpuStream streams[] = {new_stream(gpu), new_stream(gpu)};
  GpuEventPtr before;
  for (std::size_t i = 1; i < kLinks; ++i) {
    const GpuStream stream = streams[i % 2];
    if (before && wait_for_events) REQUIRE(before->hold_back(stream).ok());
    REQUIRE(gpu.copy(0, links[i].get(), links[i - 1].get(), kBytes, stream).ok());
    before = event_behind(gpu, stream);
  }
  for (const GpuStream stream : streams) REQUIRE(gpu.drain(0, stream).ok());
  return std::count(links.back().get(), links.back().get() + kBytes, std::byte{7}) == kBytes;
}

TEST_CASE("fake GPU: streams that wait for each other's events hand on the right bytes", "[gpu]") {
  for (unsigned seed = 0; seed < 50; ++seed) REQUIRE(chain_is_right(seed, true));
}

TEST_CASE("fake GPU: a missing wait for an event gives wrong bytes", "[gpu]") {
  if (kRacesAreErrors) return;  // a sanitizer would report this race
  int wrong = 0;
  for (unsigned seed = 0; seed < 50; ++seed) wrong += chain_is_right(seed, false) ? 0 : 1;
  CHECK(wrong >= 45);
}

TEST_CASE("fake GPU: a held device makes nobody wait, and goes on when released", "[gpu]") {
  FakeGpu gpu;
  const GpuStream stream = new_stream(gpu), other = new_stream(gpu);
  const GpuMemory memory = device_memory(gpu, 8);
  GpuEventPtr event, behind;
  {
    const FakeGpu::Hold hold(gpu);
    REQUIRE(gpu.zero(0, memory.get(), 8, stream).ok());
    event = event_behind(gpu, stream);
    REQUIRE(event->hold_back(other).ok());
    behind = event_behind(gpu, other);
    const GpuStream later = new_stream(gpu);
    REQUIRE(gpu.zero(0, memory.get(), 0, later).ok());
    CHECK_FALSE(*event->reached());
    CHECK_FALSE(*event_behind(gpu, later)->reached());
    CHECK(memory.get()[0] == std::byte{0xAB});  // fresh memory is garbage
  }
  REQUIRE(gpu.drain(0, other).ok());
  CHECK(*event->reached());
  CHECK(*behind->reached());
  CHECK(memory.get()[7] == std::byte{0});
}

TEST_CASE("fake GPU: one held stream does not hold another, nor the default one", "[gpu]") {
  FakeGpu gpu;
  const GpuStream held = new_stream(gpu), free = new_stream(gpu);
  const GpuMemory memory = device_memory(gpu, 8);
  {
    const FakeGpu::Hold hold(gpu, 0, held);
    REQUIRE(gpu.zero(0, memory.get(), 4, held).ok());
    REQUIRE(gpu.zero(0, memory.get() + 4, 4, free).ok());
    CHECK(gpu.drain(0, free).ok());
    CHECK(gpu.drain(0, nullptr).ok());
    CHECK_FALSE(*event_behind(gpu, held)->reached());
    CHECK(memory.get()[0] == std::byte{0xAB});
  }
  REQUIRE(gpu.drain(0, held).ok());  // the memory must outlive the work on it
}

TEST_CASE("fake GPU: what is in a stream is done when it was freed, and its events outlive all", "[gpu]") {
  GpuEventPtr event;
  {
    FakeGpu gpu;
    const GpuStream stream = new_stream(gpu);
    const GpuMemory memory = device_memory(gpu, 8);
    REQUIRE(gpu.zero(0, memory.get(), 8, stream).ok());
    event = event_behind(gpu, stream);
    gpu.free_stream(0, stream);
    CHECK(gpu.copy(0, memory.get(), memory.get(), 0, stream).code() == StatusCode::kInvalidArgument);
    REQUIRE(event->hold_back(nullptr).ok());
    REQUIRE(gpu.drain(0, nullptr).ok());
    CHECK(*event->reached());
    CHECK(memory.get()[7] == std::byte{0});
  }
  CHECK(event->reached().status().code() == StatusCode::kAborted);
  CHECK(event->hold_back(nullptr).code() == StatusCode::kAborted);
}

TEST_CASE("fake GPU: memory and devices that are no device's are refused", "[gpu]") {
  FakeGpu gpu({.devices = 2, .identity = "here "});
  CHECK(*gpu.device_count() == 2);
  CHECK(*gpu.identity(1) == "here 1");
  CHECK(gpu.identity(2).status().code() == StatusCode::kUnavailable);
  CHECK(gpu.make_stream(-1).status().code() == StatusCode::kUnavailable);
  const GpuMemory memory = device_memory(gpu, 8, 1);
  std::byte pageable[8]{};
  const Status refused = gpu.copy(1, memory.get(), pageable, 8, nullptr);
  CHECK(refused.code() == StatusCode::kAborted);
  CHECK(refused.message().find("not pinned") != std::string::npos);
  CHECK_FALSE(gpu.copy(1, memory.get() + 1, memory.get(), 8, nullptr).ok());  // one byte too many
  {
    const auto adopted = gpu.adopt(pageable);
    CHECK(gpu.copy(1, memory.get(), pageable, 8, nullptr).ok());
    CHECK(gpu.drain(1, nullptr).ok());
  }
  CHECK_FALSE(gpu.copy(1, memory.get(), pageable, 8, nullptr).ok());
  CHECK(gpu.zero(0, memory.get(), 8, new_stream(gpu, 1)).code() == StatusCode::kInvalidArgument);
}

TEST_CASE("fake GPU: work on memory that was freed ends the process", "[gpu]") {
  if (kRacesAreErrors) return;  // threads after fork() are not allowed there
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGABRT, SIG_DFL);
    static_cast<void>(::freopen("/dev/null", "w", stderr));
    FakeGpu gpu;
    {
      const FakeGpu::Hold hold(gpu);  // it outlives the memory, which is freed before the work is done
      const GpuMemory memory = *gpu.allocate(0, 8);
      if (!gpu.zero(0, memory.get(), 8, nullptr).ok()) ::_exit(1);
    }
    static_cast<void>(gpu.drain(0, nullptr));
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT));
}

TEST_CASE("fake GPU: it runs out of memory on order, and has it again when it is given back", "[gpu]") {
  FakeGpu gpu;
  gpu.limit_memory(100);
  gpu.limit_pinned(50);
  GpuMemory first = device_memory(gpu, 60);
  CHECK(gpu.allocate(0, 60).status().code() == StatusCode::kUnavailable);
  CHECK(gpu.allocate_pinned(60).status().code() == StatusCode::kUnavailable);
  CHECK(gpu.allocate_pinned(50).ok());
  first.reset();
  CHECK(gpu.allocate(0, 60).ok());
}

TEST_CASE("fake GPU: when the device fails, all calls and events say why", "[gpu]") {
  std::promise<void> begun, end;
  FakeGpu gpu;
  const GpuStream stream = new_stream(gpu);
  const GpuMemory memory = device_memory(gpu, 8);
  const GpuEventPtr passed = event_behind(gpu, stream);
  const auto block = [&] {
    begun.set_value();
    end.get_future().wait();
  };
  REQUIRE(gpu.enqueue(0, stream, block, [&] { end.set_value(); }).ok());
  begun.get_future().wait();
  gpu.fail(Status::aborted("an illegal address"));
  CHECK(passed->reached().status().message() == "an illegal address");
  CHECK(passed->hold_back(nullptr).message() == "an illegal address");
  CHECK(gpu.mark(0, stream).status().message() == "an illegal address");
  CHECK(gpu.zero(0, memory.get(), 8, stream).message() == "an illegal address");
  CHECK(gpu.drain(0, stream).message() == "an illegal address");
  CHECK(gpu.allocate(0, 8).status().message() == "an illegal address");
  CHECK(gpu.allocate_pinned(8).status().message() == "an illegal address");
  CHECK(gpu.make_stream(0).status().message() == "an illegal address");
  gpu.fail(Status::aborted("the second cause"));
  CHECK(passed->reached().status().message() == "an illegal address");
}

TEST_CASE("fake GPU: work that blocks is given up when the device goes", "[gpu]") {
  std::promise<void> begun, end;
  bool dropped = true;
  {
    FakeGpu gpu;
    const auto block = [&] {
      begun.set_value();
      end.get_future().wait();
    };
    REQUIRE(gpu.enqueue(0, nullptr, block, [&] { end.set_value(); }).ok());
    REQUIRE(gpu.enqueue(0, nullptr, [&] { dropped = false; }).ok());
    begun.get_future().wait();
  }
  CHECK(dropped);
}

TEST_CASE("fake GPU: a batch of copies casts and scales", "[gpu]") {
  FakeGpu gpu;
  const GpuMemory from = device_memory(gpu, 4 * 1000), same = device_memory(gpu, 4 * 1000);
  const GpuMemory cast = device_memory(gpu, 2 * 1000), both = device_memory(gpu, 8 * 1000);
  for (int i = 0; i < 1000; ++i) as<float>(from)[i] = static_cast<float>(i) / 7.0F;
  const Scale third{1.0, 3};
  const kernels::GpuCopy scaled[] = {
      {same.get(), from.get(), 1000, DType::kFloat32, DType::kFloat32},
      {both.get(), from.get(), 1000, DType::kFloat64, DType::kFloat32},
  };
  const kernels::GpuCopy narrowed[] = {{cast.get(), from.get(), 1000, DType::kFloat16, DType::kFloat32}};
  REQUIRE(gpu.copy_batch(0, scaled, third, nullptr).ok());
  REQUIRE(gpu.copy_batch(0, narrowed, {}, nullptr).ok());
  REQUIRE(gpu.drain(0, nullptr).ok());
  std::vector<float> want(1000);
  std::vector<std::uint16_t> half(1000);
  kernels::scale_copy(want.data(), from.get(), 1000, DType::kFloat32, third);
  kernels::cast(half.data(), DType::kFloat16, from.get(), DType::kFloat32, 1000);
  CHECK(std::equal(want.begin(), want.end(), as<float>(same)));
  CHECK(std::equal(half.begin(), half.end(), as<std::uint16_t>(cast)));
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(as<double>(both)[i] == static_cast<double>(as<float>(from)[i] / 3.0F));
  }
}

TEST_CASE("fake GPU: parts are reduced, norms added up per chunk", "[gpu]") {
  FakeGpu gpu;
  const GpuMemory a = device_memory(gpu, 4 * 700), b = device_memory(gpu, 4 * 700);
  const GpuMemory norms = device_memory(gpu, 2 * sizeof(float));
  std::iota(as<float>(a), as<float>(a) + 700, -350.0F);
  std::fill_n(as<float>(b), 700, 1.0F);
  const std::byte* const parts[] = {a.get(), b.get()};
  REQUIRE(
      gpu.reduce_parts(0, b.get(), parts, 700, DType::kFloat32, ReduceOp::kSum, {}, {1.0, 2}, nullptr).ok());
  REQUIRE(gpu.norms(0, as<float>(norms), a.get(), {700, 600}, DType::kFloat32, nullptr).ok());
  REQUIRE(gpu.drain(0, nullptr).ok());
  for (int i = 0; i < 700; ++i) REQUIRE(as<float>(b)[i] == static_cast<float>(i - 349) / 2);
  CHECK(as<float>(norms)[0] == 350 * 351 / 2 + 249 * 250 / 2);
  CHECK(as<float>(norms)[1] == (250 + 349) * 100 / 2);
}

}  // namespace
}  // namespace roundelay::doubles
