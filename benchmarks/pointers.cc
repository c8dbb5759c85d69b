// What a question to the pointer cache costs on this machine, without a GPU. The driver is played by a map
// that answers under a lock, after 0.2, 1 and 10 us: only the cache's times say something of this machine. 64
// allocations, as many as a training's allocator may have.
#include <map>

#include "base/annotations.h"
#include "benchmarks/pointer_questions.h"

namespace {

using namespace roundelay;

class MapDriver final : public PointerDriver {
 public:
  explicit MapDriver(Duration takes) : takes_(takes) {}
  void add(const Allocation& allocation) { all_[allocation.base] = allocation; }
  Result<Allocation> ask(const void* address) override {
    const MutexLock lock(mutex_);
    const TimePoint begin = steady_now();
    while (steady_now() - begin < takes_) {
    }
    const auto after = all_.upper_bound(reinterpret_cast<std::uintptr_t>(address));
    return after == all_.begin() ? Allocation{} : std::prev(after)->second;
  }

 private:
  const Duration takes_;
  Mutex mutex_;
  std::map<std::uintptr_t, Allocation> all_;
};

}  // namespace

int main() {
  constexpr std::uintptr_t kBase = 0x7f0000000000;
  constexpr std::size_t kBytes = 20 << 20, kAllocations = 64;
  for (const auto& [name, takes] : {std::pair{"0.2 us", Duration{200}},
                                    {"1 us", std::chrono::microseconds(1)},
                                    {"10 us", std::chrono::microseconds(10)}}) {
    MapDriver driver(takes);
    std::vector<const void*> addresses;
    for (std::size_t i = 0; i < kAllocations; ++i) {
      driver.add({kBase + i * kBytes, kBytes, {MemoryKind::kDevice, 0}});
      addresses.push_back(reinterpret_cast<const void*>(kBase + i * kBytes + i * 4096));
    }
    benchmarks::print_questions(name, driver, addresses);
    std::printf("\n");
  }
  return 0;
}
