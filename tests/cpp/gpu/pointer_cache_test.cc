// The pointer cache against an oracle that knows every byte, and against a driver that answers late.
#include "platform/device/pointer_cache.h"

#include <array>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cpp/catch.h"
#include "tests/cpp/doubles/fake_driver.h"
#include "tests/cpp/effort.h"

namespace roundelay::gpu_test {
namespace {

using doubles::FakeDriver;
using pointers::AllocationTable;
using pointers::PointerCache;

constexpr MemoryPlace kHostPlace{};
constexpr MemoryPlace kGpu0{MemoryKind::kDevice, 0};
constexpr MemoryPlace kPinned{MemoryKind::kRegistered, -1};

const void* at(std::uintptr_t address) { return reinterpret_cast<const void*>(address); }

// An address space of a few units. It knows each unit by itself, in the plainest way.
class Oracle {
 public:
  static constexpr std::size_t kUnits = 256, kUnitBytes = 64;
  static constexpr std::uintptr_t kBase = 0x7f0000000000;

  [[nodiscard]] static std::uintptr_t address_of(std::size_t unit) { return kBase + unit * kUnitBytes; }
  [[nodiscard]] MemoryPlace place_of(std::uintptr_t address) const {
    const Unit& unit = units_[(address - kBase) / kUnitBytes];
    return unit.used ? unit.place : kHostPlace;
  }
  [[nodiscard]] bool used(std::size_t unit) const { return units_[unit].used; }
  [[nodiscard]] std::size_t first_of(std::size_t unit) const { return units_[unit].first; }
  [[nodiscard]] std::size_t free_from(std::size_t unit, std::size_t most) const {
    std::size_t count = 0;
    while (count < most && unit + count < kUnits && !units_[unit + count].used) ++count;
    return count;
  }
  void begin(std::size_t first, std::size_t count, MemoryPlace place) {
    for (std::size_t i = first; i < first + count; ++i) units_[i] = {true, first, place};
  }
  std::size_t end(std::size_t first) {
    std::size_t count = 0;
    for (; first + count < kUnits && units_[first + count].used && units_[first + count].first == first;
         ++count)
      units_[first + count].used = false;
    return count;
  }

 private:
  struct Unit {
    bool used = false;
    std::size_t first = 0;
    MemoryPlace place{};
  };
  std::array<Unit, kUnits> units_{};
};

// Random changes and questions. Returns how many answers differ from the oracle's.
struct Fuzz {
  explicit Fuzz(unsigned seed) : random(seed) {}

  std::int64_t run(int steps) {
    std::int64_t wrong = 0;
    for (int step = 0; step < steps; ++step) {
      const std::size_t unit = random() % Oracle::kUnits;
      switch (random() % 8) {
        case 0:
          begin(unit);
          break;
        case 1:
          end(unit);
          break;
        default:
          wrong += ask(unit) ? 0 : 1;
      }
    }
    return wrong;
  }

  void begin(std::size_t unit) {
    const std::size_t count = oracle.free_from(unit, 1 + random() % 24);
    if (count == 0) return;
    const std::array places{kGpu0, MemoryPlace{MemoryKind::kDevice, 1}, kPinned,
                            MemoryPlace{MemoryKind::kManaged, 1}};
    const MemoryPlace place = places[random() % places.size()];
    oracle.begin(unit, count, place);
    driver.begin({Oracle::address_of(unit), count * Oracle::kUnitBytes, place});
  }
  // A free is heard of by its address alone, an unmapping by its range.
  void end(std::size_t unit) {
    if (!oracle.used(unit)) return;
    const std::size_t first = oracle.first_of(unit), count = oracle.end(first);
    driver.end(Oracle::address_of(first), random() % 2 == 0 ? 1 : count * Oracle::kUnitBytes);
  }
  bool ask(std::size_t unit) {
    const std::size_t offset = std::array<std::size_t, 3>{0, 17, Oracle::kUnitBytes - 1}[random() % 3];
    const std::uintptr_t address = Oracle::address_of(unit) + offset;
    return cache.locate(at(address)).value() == oracle.place_of(address);
  }

  std::minstd_rand random;
  FakeDriver driver;
  PointerCache cache{driver};
  Oracle oracle;
};

TEST_CASE("pointer cache: a million random steps agree with an oracle", "[gpu][pointers]") {
  Fuzz fuzz(1);
  fuzz.driver.tell(fuzz.cache);
  const int steps = testing::quick() ? 200'000 : 1'000'000;
  CHECK(fuzz.run(steps) == 0);
  const PointerCache::Counts counts = fuzz.cache.counts();
  CHECK(counts.misses == fuzz.driver.questions());
  CHECK(counts.hits > steps / 4);  // a part of the questions is about memory that nobody has
}

// The fuzz would find a cache that does not hear of changes.
TEST_CASE("pointer cache: without a listener its answers grow old", "[gpu][pointers]") {
  Fuzz fuzz(1);
  CHECK(fuzz.run(10'000) > 100);
}

TEST_CASE("pointer cache: an answer that is old when it comes is not kept", "[gpu][pointers]") {
  FakeDriver driver;
  PointerCache cache(driver);
  driver.tell(cache);
  const std::uintptr_t base = Oracle::kBase;
  driver.begin({base, 4096, kGpu0});

  SECTION("the memory ends and begins as another kind during the question") {
    driver.during_question([&, once = true]() mutable {
      if (!std::exchange(once, false)) return;
      driver.end(base, 1);
      driver.begin({base, 4096, kPinned});
    });
    CHECK(cache.locate(at(base + 5)).value() == kGpu0);  // as it was when the driver looked
  }
  SECTION("the question comes while the memory ends") {
    driver.during_end([&] { CHECK(cache.locate(at(base + 5)).value() == kGpu0); });
    driver.end(base, 1);
    driver.begin({base, 4096, kPinned});
  }
  SECTION("the question begins while the memory ends, and is answered after that") {
    std::thread asker;
    std::atomic<bool> looked{false}, ended{false};
    driver.during_question([&] {
      looked = true;
      while (!ended) std::this_thread::yield();
    });
    driver.during_end([&] {
      asker = std::thread([&] { static_cast<void>(cache.locate(at(base + 5))); });
      while (!looked) std::this_thread::yield();
    });
    driver.end(base, 1);
    ended = true;
    asker.join();
    driver.during_question({});
    driver.begin({base, 4096, kPinned});
  }
  CHECK(cache.locate(at(base + 5)).value() == kPinned);
}

TEST_CASE("pointer cache: host memory is kept only while it is registered", "[gpu][pointers]") {
  FakeDriver driver;
  PointerCache cache(driver);
  driver.tell(cache);
  const std::uintptr_t base = Oracle::kBase;
  for (int i = 0; i < 3; ++i) CHECK(cache.locate(at(base)).value() == kHostPlace);
  CHECK(driver.questions() == 3);
  driver.begin({base, 64, kPinned});
  for (int i = 0; i < 3; ++i) CHECK(cache.locate(at(base + 63)).value() == kPinned);
  CHECK(driver.questions() == 4);
  CHECK(cache.locate(at(base + 64)).value() == kHostPlace);
  driver.end(base, 64);
  CHECK(cache.locate(at(base)).value() == kHostPlace);
}

TEST_CASE("pointer cache: forget_all() asks anew", "[gpu][pointers]") {
  FakeDriver driver;
  PointerCache cache(driver);
  driver.begin({Oracle::kBase, 64, kGpu0});
  for (int i = 0; i < 2; ++i) CHECK(cache.locate(at(Oracle::kBase)).value() == kGpu0);
  CHECK(driver.questions() == 1);
  cache.forget_all();
  CHECK(cache.locate(at(Oracle::kBase)).value() == kGpu0);
  CHECK(driver.questions() == 2);
}

TEST_CASE("pointer cache: after stop_keeping() each question goes to the driver", "[gpu][pointers]") {
  FakeDriver driver;
  PointerCache cache(driver);
  driver.begin({Oracle::kBase, 64, kGpu0});
  driver.begin({Oracle::kBase + 64, 64, kGpu0});
  CHECK(cache.locate(at(Oracle::kBase)).value() == kGpu0);
  // An answer that is under way then is not kept either.
  driver.during_question([&] { cache.stop_keeping(); });
  CHECK(cache.locate(at(Oracle::kBase + 64)).value() == kGpu0);
  driver.during_question({});
  for (const std::uintptr_t address : {Oracle::kBase, Oracle::kBase + 64}) {
    CHECK_FALSE(cache.known(at(address)).has_value());
    CHECK(cache.locate(at(address)).value() == kGpu0);
    CHECK_FALSE(cache.known(at(address)).has_value());
  }
}

TEST_CASE("pointer cache: its memory is bounded", "[gpu][pointers]") {
  AllocationTable table;
  const auto allocation = [](std::size_t i) { return Allocation{Oracle::kBase + i * 64, 32, kGpu0}; };
  for (std::size_t i = 0; i < AllocationTable::kMost; ++i) table.insert(allocation(i));
  CHECK(table.size() == AllocationTable::kMost);
  CHECK(table.find(allocation(AllocationTable::kMost - 1).base) == kGpu0);
  table.insert(allocation(AllocationTable::kMost));
  CHECK(table.size() == 1);
  CHECK(table.find(allocation(AllocationTable::kMost).base) == kGpu0);
  CHECK_FALSE(table.find(allocation(0).base).has_value());
}

// Threads ask about memory that stays, while another one begins and ends memory all around it. It rests now
// and then: an answer is only kept if nothing changes meanwhile.
TEST_CASE("pointer cache: readers without a lock get the right answers", "[gpu][pointers]") {
  FakeDriver driver;
  PointerCache cache(driver);
  driver.tell(cache);
  constexpr std::size_t kRanges = 64, kBytes = 256;
  const auto base_of = [](std::size_t i) { return Oracle::kBase + i * kBytes; };
  const auto place_of = [](std::size_t i) { return MemoryPlace{MemoryKind::kDevice, static_cast<int>(i)}; };
  for (std::size_t i = 0; i < kRanges; i += 2) driver.begin({base_of(i), kBytes, place_of(i)});

  std::atomic<bool> over{false};
  std::atomic<std::int64_t> wrong{0}, asked{0};
  std::vector<std::thread> readers;
  for (unsigned seed = 1; seed <= 3; ++seed) {
    readers.emplace_back([&, seed] {
      std::minstd_rand random(seed);
      while (!over) {
        const std::size_t i = random() % (kRanges / 2) * 2;
        if (cache.locate(at(base_of(i) + random() % kBytes)).value() != place_of(i)) ++wrong;
        ++asked;
      }
    });
  }
  std::minstd_rand random(7);
  for (int i = 0; i < 2'000; ++i) {
    const std::size_t range = random() % (kRanges / 2) * 2 + 1;
    driver.begin({base_of(range), kBytes, place_of(range)});
    CHECK(cache.locate(at(base_of(range))).value() == place_of(range));
    driver.end(base_of(range), 1);
    if (i % 100 != 0) continue;
    cache.forget_all();
    for (const std::int64_t enough = asked + 500; asked < enough;) std::this_thread::yield();
  }
  over = true;
  for (std::thread& reader : readers) reader.join();
  CHECK(wrong == 0);
  CHECK(cache.counts().hits > 0);
}

}  // namespace
}  // namespace roundelay::gpu_test
