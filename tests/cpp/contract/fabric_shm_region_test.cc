// Calls of fabric shm in regions: orders of steps in one thread, with members that are away and calls that
// are aborted; members that are silent; regions of other groups; what is staged.
#include <algorithm>
#include <numeric>
#include <random>

#include "tests/cpp/catch.h"
#include "tests/cpp/contract/fabric_contract.h"
#include "tests/cpp/contract/random_steps.h"
#include "tests/cpp/contract/shm_world.h"

namespace roundelay::contract {
namespace {

using collective::AllgatherCall;
using collective::CallOptions;
using collective::PendingCall;
using collective::ReducescatterCall;
using Sizes = std::vector<std::size_t>;

constexpr std::size_t kElements = 1 << 17;  // of a region

std::int64_t staged(const Fabric& fabric) { return fabric.capabilities().counters->bytes_staged; }

// One call of a script, the same for all members.
struct Planned {
  // `counts`: how many elements each member's part has; 0 for absent ones.
  Planned(std::mt19937& random, std::size_t members) : counts(members) {
    constexpr Operation kOperations[] = {Operation::kAllreduce, Operation::kReducescatter,
                                         Operation::kAllgather};
    constexpr std::size_t kMost[] = {3, 70, 3000, 20000};
    operation = kOperations[random() % std::size(kOperations)];
    const std::size_t most = kMost[random() % std::size(kMost)];
    const std::size_t away = random() % 4 == 0 ? random() % members : 0;
    for (std::size_t i = 0; i < away; ++i) absent.push_back(static_cast<int>(i + random() % 2));
    absent.erase(std::unique(absent.begin(), absent.end()), absent.end());
    for (std::size_t& count : counts) count = random() % 5 == 0 ? 0 : random() % most + 1;
    for (const int member : absent) counts[static_cast<std::size_t>(member)] = 0;
    offset = random() % 1000;
  }

  [[nodiscard]] std::size_t all() const {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  }
  [[nodiscard]] std::size_t before(std::size_t member) const {
    return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(member),
                           std::size_t{0});
  }
  [[nodiscard]] bool is_absent(std::size_t member) const {
    return std::ranges::binary_search(absent, static_cast<int>(member));
  }
  [[nodiscard]] Sizes bytes() const {
    Sizes sizes;
    for (const std::size_t count : counts) sizes.push_back(count * sizeof(std::int32_t));
    return sizes;
  }

  Operation operation;
  Sizes counts;
  std::vector<int> absent;
  std::size_t offset = 0;
};

std::vector<Planned> planned(unsigned seed, int members, int calls) {
  std::mt19937 random(seed);
  std::vector<Planned> plan;
  for (int i = 0; i < calls; ++i) plan.emplace_back(random, static_cast<std::size_t>(members));
  return plan;
}

// One member's calls in its region. It begins the next one as soon as one is over.
class Script {
 public:
  Script(Fabric& fabric, const std::vector<Planned>& plan)
      : fabric_(fabric),
        plan_(plan),
        region_(*fabric.capabilities().make_region(1, kElements * sizeof(std::int32_t))),
        elements_(reinterpret_cast<std::int32_t*>(region_->own.data()), kElements) {}

  // Starts the next call if none is in progress, and tests it once. False: all calls are over, or one failed.
  bool step() {
    if (!pending_) {
      if (number_ == plan_.size()) return false;
      auto started = start();
      if (!started.ok()) return fail(started.status());
      pending_ = std::move(*started);
    }
    const Result<bool> done = pending_->test();
    if (!done.ok()) return fail(done.status());
    if (!*done) return true;
    pending_.reset();
    check();
    ++number_;
    return true;
  }
  void abort(const Status& cause) { abort_.raise(cause); }
  [[nodiscard]] const Status& error() const { return error_; }
  [[nodiscard]] bool in_progress() const { return pending_ != nullptr; }

 private:
  [[nodiscard]] const Planned& now() const { return plan_[number_]; }
  [[nodiscard]] std::size_t self() const { return static_cast<std::size_t>(fabric_.group().index); }

  bool fail(const Status& error) {
    error_ = error;
    return false;
  }

  [[nodiscard]] ByteSpan bytes_at(std::size_t first, std::size_t count) const {
    return std::as_writable_bytes(elements_.subspan(now().offset + first, count));
  }

  // Writes this member's input, and starts the call.
  Result<std::unique_ptr<PendingCall>> start() {
    const Planned& call = now();
    const bool gathers = call.operation == Operation::kAllgather;
    const std::size_t first = gathers ? call.before(self()) : 0;
    const std::size_t count = gathers ? call.counts[self()] : call.all();
    for (std::size_t i = 0; i < count; ++i)
      elements_[call.offset + first + i] = value(number_, self(), first + i);
    CallOptions options;
    options.absent = call.absent;
    options.abort = &abort_;
    const collective::Reduction sum{.dtype = DType::kInt32};
    const ByteSpan all = bytes_at(0, call.all()), own = bytes_at(call.before(self()), call.counts[self()]);
    if (gathers) {
      return fabric_.start(AllgatherCall{options, own.data(), all, call.bytes(), region_.get()});
    }
    if (call.operation == Operation::kReducescatter) {
      return fabric_.start(ReducescatterCall{options, sum, all.data(), own, call.bytes(), region_.get()});
    }
    const std::size_t offset = call.offset * sizeof(std::int32_t);
    return fabric_.start(
        AllreduceCall{options, sum, {region_->own.data(), offset, all.size(), region_.get()}});
  }

  // Compares the result, and the rest of the memory, with what they should be.
  void check() const {
    const Planned& call = now();
    if (call.is_absent(self())) return;
    const std::size_t first = call.before(self()), end = first + call.counts[self()];
    std::size_t giver = 0, wrong = 0;
    for (std::size_t i = 0; i < call.all(); ++i) {
      while (i >= call.before(giver) + call.counts[giver]) ++giver;
      std::int32_t want = value(number_, self(), i);
      if (call.operation == Operation::kAllgather) {
        want = value(number_, giver, i);
      } else if (call.operation == Operation::kAllreduce || (i >= first && i < end)) {
        want = sum_at(i);
      }
      wrong += elements_[call.offset + i] == want ? 0 : 1;
    }
    REQUIRE(wrong == 0);
  }
  [[nodiscard]] std::int32_t sum_at(std::size_t i) const {
    std::int32_t sum = 0;
    for (std::size_t member = 0; member < now().counts.size(); ++member) {
      if (!now().is_absent(member)) sum += value(number_, member, i);
    }
    return sum;
  }

  Fabric& fabric_;
  const std::vector<Planned>& plan_;
  const RegionPtr region_;
  const std::span<std::int32_t> elements_;
  AbortToken abort_;
  std::unique_ptr<PendingCall> pending_;
  std::size_t number_ = 0;
  Status error_;
};

// Steps members in random order, often one many times, until all are over. At turn `aborted` all calls are
// aborted, in a random order, too.
void run_in_one_thread(std::vector<std::unique_ptr<Script>>& scripts, unsigned seed, std::size_t aborted) {
  std::mt19937 random(seed);
  std::vector<Script*> hale;
  for (const auto& script : scripts) hale.push_back(script.get());
  step_in_any_order(hale, random, [&](std::size_t turn) {
    if (turn < aborted || hale.empty() || random() % 4 != 0) return;
    const auto next = hale.begin() + static_cast<std::ptrdiff_t>(random() % hale.size());
    (*next)->abort(Status::aborted("cause"));
    hale.erase(next);
  });
}

TEST_CASE("shm in regions: members in any order, some of them away at times", "[fabric][one thread]") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    const int size = 1 + static_cast<int>(seed % 5);
    const auto fabrics = shm_fabrics(size);
    const auto plan = planned(seed, size, 12);
    std::vector<std::unique_ptr<Script>> scripts;
    for (const auto& fabric : fabrics) scripts.push_back(std::make_unique<Script>(*fabric, plan));
    INFO("seed " << seed);
    run_in_one_thread(scripts, seed + 1, SIZE_MAX);
    for (const auto& script : scripts) REQUIRE(script->error().message() == "");
    for (const auto& fabric : fabrics) REQUIRE(staged(*fabric) == 0);
  }
}

// No member sees a wrong result before its own call is aborted.
TEST_CASE("shm in regions: calls that are aborted in the middle", "[fabric][one thread]") {
  int failed = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    const int size = 2 + static_cast<int>(seed % 3);
    const auto fabrics = shm_fabrics(size);
    const auto plan = planned(seed, size, 12);
    std::vector<std::unique_ptr<Script>> scripts;
    for (const auto& fabric : fabrics) scripts.push_back(std::make_unique<Script>(*fabric, plan));
    INFO("seed " << seed);
    run_in_one_thread(scripts, seed + 1, seed % 40);
    for (std::size_t i = 0; i < scripts.size(); ++i) {
      const Status& error = scripts[i]->error();
      if (error.ok()) continue;
      ++failed;
      REQUIRE(error.message() == "cause");
      REQUIRE(fabrics[i]->poisoned() == scripts[i]->in_progress());
    }
  }
  CHECK(failed > 300);
}

std::vector<Call> one_of_each(const Region& region, const Fabric& fabric, Deadline deadline) {
  const std::size_t members = fabric.group().ranks.size(),
                    self = static_cast<std::size_t>(fabric.group().index);
  const ByteSpan all = region.own.first(members * 400), own = all.subspan(self * 400, 400);
  const Sizes sizes(members, 400);
  CallOptions options;
  options.deadline = deadline;
  return {AllreduceCall{options, {}, {all.data(), 0, all.size(), &region}},
          ReducescatterCall{options, {}, all.data(), own, sizes, &region},
          AllgatherCall{options, own.data(), all, sizes, &region}};
}

TEST_CASE("shm in regions: a silent member is named at the deadline", "[fabric]") {
  for (std::size_t kind = 0; kind < 3; ++kind) {
    const auto fabrics = shm_fabrics(3);
    std::vector<RegionPtr> regions;
    for (const auto& fabric : fabrics) regions.push_back(*fabric->capabilities().make_region(1, 1200));
    const Deadline soon = Deadline::after(std::chrono::milliseconds(50));
    auto pending = fabrics[0]->start(one_of_each(*regions[0], *fabrics[0], soon)[kind]);
    auto other = fabrics[2]->start(one_of_each(*regions[2], *fabrics[2], soon)[kind]);
    REQUIRE((pending.ok() && other.ok()));
    const Status error = (*pending)->wait();
    CHECK(error.code() == StatusCode::kAborted);
    CHECK_THAT(error.message(), Catch::Matchers::EndsWith("until its deadline, waiting for rank 11"));
    CHECK(fabrics[0]->poisoned());
  }
}

// A region of other ranks is memory as any other: the bytes are staged.
TEST_CASE("shm: a region of another group", "[fabric]") {
  const auto fabrics = shm_fabrics(2), others = shm_fabrics(2, 20);
  const std::string error = run_on_threads(fabrics, [&others](Fabric& fabric) -> std::string {
    const auto self = static_cast<std::size_t>(fabric.group().index);
    const auto region = *others[1 - self]->capabilities().make_region(1, 800);
    for (const Call& call : one_of_each(*region, fabric, patient<BarrierCall>().deadline)) {
      const std::span elements(reinterpret_cast<float*>(region->own.data()), 200);
      std::ranges::fill(elements, static_cast<float>(self + 1));
      const auto before = staged(fabric);
      if (std::string bad = run_call(fabric, call); !bad.empty()) return bad;
      if (staged(fabric) == before) return "nothing was staged";
      const bool sums = operation_of(call) != Operation::kAllgather;
      const bool everywhere = operation_of(call) != Operation::kReducescatter;
      for (std::size_t i = 0; i < 200; ++i) {
        const std::size_t owner = i / 100;
        if (!everywhere && owner != self) continue;
        if (elements[i] != (sums ? 3.0F : static_cast<float>(owner + 1))) return "a wrong result";
      }
    }
    return "";
  });
  CHECK(error == "");
}

}  // namespace
}  // namespace roundelay::contract
