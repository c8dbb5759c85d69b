// Allreduces of fabric shm whose buffers lie in heaps: of all members, of some, at any place, in orders of
// steps in one thread and in threads; what is staged; a member that is silent.
#include <random>
#include <thread>

#include "tests/cpp/catch.h"
#include "tests/cpp/contract/fabric_contract.h"
#include "tests/cpp/contract/random_steps.h"
#include "tests/cpp/contract/shm_world.h"

namespace roundelay::contract {
namespace {

using collective::PendingCall;

constexpr std::size_t kElements = 1 << 19;  // of a heap

std::int64_t staged(const Fabric& fabric) { return fabric.capabilities().counters->bytes_staged; }

// One call of a script, the same for all members, of which each has its own place.
struct Planned {
  Planned(std::mt19937& random, std::size_t members, bool all_in_heap) {
    constexpr std::size_t kMost[] = {3, 70, 3000, 20000, 300000};
    const std::size_t kind = random() % 40;
    count = random() % kMost[kind == 0 ? 4 : kind % 4] + 1;
    if (members > 2 && random() % 5 == 0) absent.push_back(static_cast<int>(random() % members));
    for (std::size_t i = 0; i < members; ++i) {
      in_heap.push_back(all_in_heap || random() % 3 > 0);
      places.push_back(random() % (kElements - count));
    }
  }
  [[nodiscard]] bool is_absent(std::size_t member) const {
    return !absent.empty() && absent.front() == static_cast<int>(member);
  }

  std::size_t count = 0;
  std::vector<int> absent;
  std::vector<bool> in_heap;
  std::vector<std::size_t> places;
};

std::vector<Planned> planned(unsigned seed, int members, bool all_in_heap) {
  std::mt19937 random(seed);
  std::vector<Planned> plan;
  for (int i = 0; i < 12; ++i) plan.emplace_back(random, static_cast<std::size_t>(members), all_in_heap);
  return plan;
}

// One member's calls. It begins the next one as soon as one is over.
class Script {
 public:
  Script(Fabric& fabric, const CommonHeap& heap, const std::vector<Planned>& plan)
      : fabric_(fabric), plan_(plan), heap_(heap.own()), elsewhere_(heap_.size()) {}

  // Starts the next call if none is in progress, and tests it once. False: all calls are over, or one failed.
  bool step() {
    if (!pending_ && number_ == plan_.size()) return false;
    if (!pending_) pending_ = start();
    const Result<bool> done = pending_->test();
    if (!done.ok()) error_ = done.status().message();
    if (!done.ok() || !*done) return done.ok();
    pending_.reset();
    check();
    ++number_;
    return error_.empty();
  }
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  [[nodiscard]] std::size_t self() const { return static_cast<std::size_t>(fabric_.group().index); }
  [[nodiscard]] std::span<std::int32_t> elements() {
    const Planned& call = plan_[number_];
    const ByteSpan memory = call.in_heap[self()] ? heap_ : ByteSpan(elsewhere_);
    return {reinterpret_cast<std::int32_t*>(memory.data()) + call.places[self()], call.count};
  }

  std::unique_ptr<PendingCall> start() {
    const std::span<std::int32_t> own = elements();
    for (std::size_t i = 0; i < own.size(); ++i) own[i] = value(number_, self(), i);
    AllreduceCall call;
    call.absent = plan_[number_].absent;
    call.dtype = DType::kInt32;
    call.buffer = {reinterpret_cast<std::byte*>(own.data()), 0, own.size_bytes()};
    return std::move(fabric_.start(call)).value();
  }

  void check() {
    const Planned& call = plan_[number_];
    if (call.is_absent(self())) return;
    const std::span<std::int32_t> own = elements();
    for (std::size_t i = 0; i < own.size(); ++i) {
      std::int32_t sum = 0;
      for (std::size_t member = 0; member < call.places.size(); ++member) {
        if (!call.is_absent(member)) sum += value(number_, member, i);
      }
      if (own[i] != sum) error_ = "call " + std::to_string(number_) + ": a wrong sum";
    }
  }

  Fabric& fabric_;
  const std::vector<Planned>& plan_;
  const ByteSpan heap_;
  std::vector<std::byte> elsewhere_;
  std::unique_ptr<PendingCall> pending_;
  std::size_t number_ = 0;
  std::string error_;
};

struct World {
  World(unsigned seed, int size, bool all_in_heap)
      : heaps(CommonHeap::of_all(size, kElements * sizeof(std::int32_t))),
        fabrics(shm_fabrics(size, 10, heaps)),
        plan(planned(seed, size, all_in_heap)) {
    for (std::size_t i = 0; i < fabrics.size(); ++i)
      scripts.push_back(std::make_unique<Script>(*fabrics[i], *heaps[i], plan));
  }

  const CommonHeaps heaps;
  const std::vector<std::unique_ptr<Fabric>> fabrics;
  const std::vector<Planned> plan;
  std::vector<std::unique_ptr<Script>> scripts;
};

// Steps members in random order, often one many times, until all are over.
void run_in_one_thread(World& world, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Script*> open;
  for (const auto& script : world.scripts) open.push_back(script.get());
  step_in_any_order(open, random, [](std::size_t /*turn*/) {});
}

TEST_CASE("shm: buffers in heaps of some members, in any order", "[fabric][one thread]") {
  for (unsigned seed = 0; seed < 60; ++seed) {
    World world(seed, 1 + static_cast<int>(seed % 4), false);
    INFO("seed " << seed);
    run_in_one_thread(world, seed + 1);
    for (const auto& script : world.scripts) REQUIRE(script->error() == "");
  }
}

TEST_CASE("shm: only small buffers are staged if all lie in heaps", "[fabric][one thread]") {
  constexpr std::int64_t kMostTogether = 8 << 10;
  for (unsigned seed = 0; seed < 20; ++seed) {
    World world(seed, 2 + static_cast<int>(seed % 3), true);
    INFO("seed " << seed);
    run_in_one_thread(world, seed + 1);
    for (const auto& script : world.scripts) REQUIRE(script->error() == "");
    for (const auto& fabric : world.fabrics) REQUIRE(staged(*fabric) <= 12 * kMostTogether);
  }
}

TEST_CASE("shm: buffers in heaps, in threads", "[fabric]") {
  for (unsigned seed = 0; seed < 8; ++seed) {
    World world(seed, 2 + static_cast<int>(seed % 2), seed % 4 == 0);
    INFO("seed " << seed);
    const std::string error = run_on_threads(world.fabrics, [&world](Fabric& fabric) {
      Script& script = *world.scripts[static_cast<std::size_t>(fabric.group().index)];
      while (script.step()) std::this_thread::yield();
      return script.error();
    });
    REQUIRE(error == "");
  }
}

TEST_CASE("shm: a silent member is named, wherever the buffers lie", "[fabric]") {
  const auto heaps = CommonHeap::of_all(2, 1 << 20);
  const auto fabrics = shm_fabrics(2, 10, heaps);
  AllreduceCall call;
  call.deadline = Deadline::after(std::chrono::milliseconds(50));
  call.buffer = {heaps[0]->own().data(), 0, 1 << 20};
  auto pending = fabrics[0]->start(call);
  REQUIRE(pending.ok());
  const Status error = (*pending)->wait();
  CHECK_THAT(error.message(), Catch::Matchers::EndsWith("until its deadline, waiting for rank 11"));
}

}  // namespace
}  // namespace roundelay::contract
