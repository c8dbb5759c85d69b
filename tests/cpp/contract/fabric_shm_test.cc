// The fabric contract over shared memory with threads as members, random orders of steps in one thread, and
// this medium's own tests: sleepers, members that were away, the limits of its slots.
#include <algorithm>
#include <chrono>
#include <random>
#include <span>
#include <thread>

#include "collective/shm/segment.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/contract/fabric_contract.h"
#include "tests/cpp/contract/shm_world.h"

namespace roundelay::contract {
namespace {

using collective::Buffer;
using collective::PendingCall;
using collective::shm::Segment;

class SharedMemoryMedium final : public Medium {
 public:
  [[nodiscard]] int largest_group() const override { return largest_of_threads(); }
  std::string run(int size, Select /*select*/, const Part& part) override {
    return run_on_threads(shm_fabrics(size), part);
  }
};

TEST_CASE("shm keeps the fabric contract", "[fabric]") {
  SharedMemoryMedium medium;
  for (const Test& test : fabric_contract()) {
    SECTION(test.name) {
      for (int size = 1; size <= medium.largest_group(); ++size) {
        INFO(test.name << ", " << size << " members");
        CHECK(test.run(medium, size) == "");
      }
    }
  }
}

// One member's calls, in a sequence with known results.
class Script {
 public:
  Script(Fabric& fabric, unsigned seed)
      : fabric_(fabric), random_(seed), region_(*fabric.capabilities().make_region(1, 1 << 20)) {}

  // Starts the next call if none is running, and tests it once. Returns false when all are over.
  bool step(int calls) {
    if (!pending_) {
      if (number_ == calls) return false;
      ++number_;
      begin();
    }
    const Result<bool> done = pending_->test();
    REQUIRE(done.ok());
    if (!*done) return true;
    pending_.reset();
    check();
    return true;
  }

 private:
  [[nodiscard]] bool absent(int member) const {
    return std::binary_search(absent_.begin(), absent_.end(), member);
  }

  // All members share the seed, so they choose alike.
  void begin() {
    const int size = fabric_.group().size(), self = fabric_.group().index;
    constexpr std::size_t kCounts[] = {1, 67, 3000, Segment::kSlotBytes / 4, 200001};
    count_ = kCounts[random_() % std::size(kCounts)];
    const bool reduces = random_() % 2 == 0;
    const int away = static_cast<int>(random_() % 3);
    const int first = static_cast<int>(random_() % static_cast<unsigned>(size));
    data_.resize(count_);
    const std::size_t bytes = count_ * sizeof(float);
    Buffer buffer{reinterpret_cast<std::byte*>(data_.data()), 0, bytes, nullptr};
    if (reduces && random_() % 2 == 0) {
      buffer = {region_->own.data(), (random_() % 512) * 256, bytes, region_.get()};
    }
    values_ = {reinterpret_cast<float*>(buffer.data()), count_};
    std::fill(values_.begin(), values_.end(), static_cast<float>(self + 1));
    absent_.clear();
    for (int i = 0; i < std::min(away, size - 1); ++i) absent_.push_back((first + i) % size);
    std::sort(absent_.begin(), absent_.end());
    root_ = reduces ? -1 : 0;
    while (!reduces && absent(root_)) ++root_;
    auto started = reduces ? start_allreduce(buffer) : start_broadcast({buffer.data(), bytes});
    REQUIRE(started.ok());
    pending_ = std::move(*started);
  }

  Result<std::unique_ptr<PendingCall>> start_allreduce(const Buffer& buffer) {
    auto call = patient<AllreduceCall>();
    call.buffer = buffer;
    call.absent = absent_;
    return fabric_.start(call);
  }

  Result<std::unique_ptr<PendingCall>> start_broadcast(ByteSpan buffer) {
    auto call = patient<BroadcastCall>();
    call.buffer = buffer;
    call.root = root_;
    call.absent = absent_;
    return fabric_.start(call);
  }

  void check() const {
    const int self = fabric_.group().index;
    float want = 0;
    for (int member = 0; member < fabric_.group().size(); ++member) {
      if (!absent(member)) want += static_cast<float>(member + 1);
    }
    if (root_ >= 0) want = static_cast<float>(root_ + 1);
    if (absent(self)) want = static_cast<float>(self + 1);
    REQUIRE(std::count(values_.begin(), values_.end(), want) == static_cast<std::ptrdiff_t>(count_));
  }

  Fabric& fabric_;
  std::mt19937 random_;
  const RegionPtr region_;
  std::size_t count_ = 0;
  std::vector<float> data_;
  std::span<float> values_;
  std::vector<int> absent_;
  int root_ = -1;  // -1: an allreduce
  std::unique_ptr<PendingCall> pending_;
  int number_ = 0;
};

TEST_CASE("shm: members in any order, some of them away at times", "[fabric][one thread]") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    const int size = 2 + static_cast<int>(seed % 5);
    const auto fabrics = shm_fabrics(size);
    std::vector<Script> scripts;
    for (const auto& fabric : fabrics) scripts.emplace_back(*fabric, seed);
    std::mt19937 random(seed + 1);
    std::vector<std::size_t> open(scripts.size());
    for (std::size_t i = 0; i < open.size(); ++i) open[i] = i;
    INFO("seed " << seed);
    std::size_t turns = 0;
    while (!open.empty()) {
      // One member also makes many steps in a row, so that it gets as far ahead as it can.
      const std::size_t at = random() % open.size();
      const std::size_t steps = random() % 3 == 0 ? 50 : 1;
      for (std::size_t step = 0; step < steps; ++step) {
        if (scripts[open[at]].step(12)) continue;
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      }
      REQUIRE(++turns < 1'000'000);
    }
  }
}

TEST_CASE("shm: around the edges of its slots", "[fabric]") {
  for (const int size : {2, 3, 4}) {
    auto fabrics = shm_fabrics(size);
    const std::string complaint = run_on_threads(fabrics, [size](Fabric& fabric) {
      const std::size_t slot = Segment::kSlotBytes;
      for (const std::size_t around : {std::size_t{8} << 10, slot, 2 * slot, 3 * slot}) {
        for (const std::size_t bytes : {around - 1, around, around + 1}) {
          std::vector<std::byte> data(bytes + 3, std::byte{1});
          AllreduceCall call = allreduce_over(data.data() + 1, bytes);
          call.dtype = DType::kUInt8;
          if (std::string error = run_call(fabric, call); !error.empty()) return error;
          const auto sum = static_cast<std::byte>(size);
          if (std::count(data.begin(), data.end(), sum) != static_cast<std::ptrdiff_t>(bytes) ||
              data.front() != std::byte{1} || data.back() != std::byte{1}) {
            return std::to_string(bytes) + " bytes: wrong sums";
          }
        }
      }
      return std::string();
    });
    CHECK(complaint == "");
  }
}

TEST_CASE("shm: a sleeper is woken by its peer, and by its waker", "[fabric]") {
  auto fabrics = shm_fabrics(2);
  int late = 0;  // rounds in which a sleep went on to its end, or the machine was busy
  for (int round = 0; round < 20; ++round) {
    const TimePoint begin = steady_now();
    const std::string complaint = run_on_threads(fabrics, [](Fabric& fabric) {
      if (fabric.group().index == 1) std::this_thread::sleep_for(std::chrono::milliseconds(3));
      return run_call(fabric, patient<BarrierCall>());
    });
    CHECK(complaint == "");
    late += steady_now() - begin < std::chrono::milliseconds(80) ? 0 : 1;
  }
  CHECK(late <= 10);
  AbortToken abort;
  auto call = patient<BarrierCall>();
  call.abort = &abort;
  auto pending = fabrics[0]->start(call);
  REQUIRE(pending.ok());
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    abort.raise(Status::aborted("cause"));
    fabrics[0]->capabilities().waker->wake();
  });
  CHECK((*pending)->wait().message() == "cause");
  other.join();
}

TEST_CASE("shm: a silent member is named at the deadline and the fabric is poisoned", "[fabric]") {
  for (const std::size_t count : {std::size_t{8}, std::size_t{200000}}) {
    const auto fabrics = shm_fabrics(3);
    std::vector<float> data(count);
    AllreduceCall call = allreduce_over(reinterpret_cast<std::byte*>(data.data()), count * 4);
    call.deadline = Deadline::after(std::chrono::milliseconds(50));
    auto pending = fabrics[0]->start(call);
    REQUIRE(pending.ok());
    auto other = fabrics[2]->start(call);  // runs so far that member 0 sees that it came
    REQUIRE(other.ok());
    const Status error = (*pending)->wait();
    CHECK(error.code() == StatusCode::kAborted);
    CHECK(error.message() == "allreduce of " + std::to_string(count * 4) +
                                 " bytes made no progress until its deadline, waiting for rank 11");
    CHECK((*pending)->waiting_for() == 1);
    CHECK(fabrics[0]->poisoned());
    CHECK(fabrics[0]->start(call).status() == error);
  }
}

TEST_CASE("shm: dropping a call in progress poisons the fabric, and those behind it fail", "[fabric]") {
  const auto fabrics = shm_fabrics(2);
  const auto call = patient<BarrierCall>();
  auto first = fabrics[0]->start(call);
  auto second = fabrics[0]->start(call);
  REQUIRE((first.ok() && second.ok()));
  first->reset();
  CHECK(fabrics[0]->poisoned());
  CHECK((*second)->test().status().message() == "barrier was dropped before its end");
}

}  // namespace
}  // namespace roundelay::contract
