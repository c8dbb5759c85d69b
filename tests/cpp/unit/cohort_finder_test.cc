#include "lock/cohort_finder.h"

#include <string>

#include "tests/cpp/catch.h"
#include "tests/cpp/unit/coordinator_desk.h"

namespace roundelay::negotiate {
namespace {

// Each letter is an operation with one tensor.
void see(lock::CohortFinder& finder, const std::string& letters, std::size_t waiters = 4) {
  for (const char letter : letters) finder.saw({static_cast<wire::CacheId>(letter)}, waiters);
}

std::string found(const lock::CohortFinder& finder) {
  std::string letters;
  const auto cohort = finder.cohort();
  if (!cohort) return "-";
  for (const wire::CacheId id : *cohort) letters += static_cast<char>(id);
  return letters;
}

TEST_CASE("tensors that come equally often in any sequence are a cohort", "[schedule]") {
  lock::CohortFinder finder;
  see(finder, "abcbcacabba");
  CHECK(found(finder) == "-");
  see(finder, "c");
  CHECK(found(finder) == "abc");
  see(finder, "a");  // one thread is ahead
  CHECK(found(finder) == "abc");
}

TEST_CASE("tensors of which one comes ten times as often as another are no cohort", "[schedule]") {
  lock::CohortFinder finder;
  for (int i = 0; i < 30; ++i) {
    see(finder, "aaaaaaaaaab");
    CHECK(found(finder) == "-");
  }
  CHECK(finder.may_come());
}

TEST_CASE("a cohort counts each tensor of fused operations", "[schedule]") {
  lock::CohortFinder finder;
  for (int i = 0; i < 2; ++i) {
    finder.saw({2, 1}, 3);
    finder.saw({3, 1, 2}, 3);
    finder.saw({3}, 3);
  }
  CHECK(finder.cohort() == lock::CohortFinder::Ids{1, 2, 3});
}

TEST_CASE("a tensor that comes more rarely is in no cohort, and hides none for long", "[schedule]") {
  lock::CohortFinder finder;
  see(finder, "abababmababab");
  CHECK(found(finder) == "-");
  see(finder, "abababababababababab");
  CHECK(found(finder) == "ab");
}

TEST_CASE("a cohort has no more tensors than threads wait at once", "[schedule]") {
  lock::CohortFinder finder;
  see(finder, "abcdabcdabcdabcd", 3);  // one of three threads has two tensors: it would wait for itself
  CHECK(found(finder) == "-");
  CHECK_FALSE(finder.may_come());

  lock::CohortFinder alone;
  see(alone, "abababababababab", 1);
  CHECK(found(alone) == "-");
  CHECK_FALSE(alone.may_come());

  lock::CohortFinder one_name;
  see(one_name, "aaaaaaaaaaaaaaaa", 4);
  CHECK(found(one_name) == "-");
}

TEST_CASE("more tensors than a cohort may have are none", "[schedule]") {
  lock::CohortFinder finder;
  for (int round = 0; round < 20; ++round) {
    for (wire::CacheId id = 0; id <= lock::CohortFinder::kMostTensors; ++id) {
      finder.saw({id}, lock::CohortFinder::kMostTensors + 4);
      CHECK_FALSE(finder.cohort());
    }
  }
}

TEST_CASE("a lock that ends soon asks for more repetitions, and one that lasts for few", "[schedule]") {
  lock::CohortFinder finder;
  see(finder, "abababab");
  CHECK(found(finder) == "ab");
  finder.unlocked(3);
  CHECK(finder.times_needed() == 2 * lock::CohortFinder::kLeastTimes);
  see(finder, "abababab");
  CHECK(found(finder) == "-");
  see(finder, "abababab");
  CHECK(found(finder) == "ab");
  for (int i = 0; i < 20; ++i) finder.unlocked(3);
  CHECK(finder.times_needed() == lock::CohortFinder::kMostTimes);
  finder.unlocked(100'000);
  CHECK(finder.times_needed() == lock::CohortFinder::kLeastTimes);
}

// Both ranks sum each letter in turn, "c" in fp64 and the others in fp32. Returns the lock that comes, if one
// does.
std::optional<wire::Lock> lock_after(const std::string& letters, std::size_t waiters) {
  CoordinatorOptions options = eager();
  options.schedule_lock = true;
  Desk desk(options);
  for (const char letter : letters) {
    wire::Request request = request_of(std::string(1, letter));
    if (letter == 'c') request.dtype = DType::kFloat64;
    desk.coordinator.note_waiters(waiters);
    desk.everyone({request});
    if (const auto order = desk.order(); order && order->lock) return order->lock;
  }
  return std::nullopt;
}

TEST_CASE("a cohort is locked as the operations that its tensors fuse into", "[schedule]") {
  const std::string letters = "abcbcacabacbbaccba";
  const auto lock = lock_after(letters, 3);
  REQUIRE(lock);
  CHECK(lock->gathers);
  CHECK(lock->operations == std::vector<Ids>{{1, 2}, {3}});
  CHECK_FALSE(lock_after(letters, 1));
  CHECK_FALSE(lock_after(letters, 2));
}

// Threads wait at once, but for too many tensors.
TEST_CASE("a sequence of more tensors than threads wait for is locked as it is", "[schedule]") {
  const auto lock = lock_after("abcdefabcdefabcdefabcdefabcdefabcdef", 2);
  REQUIRE(lock);
  CHECK_FALSE(lock->gathers);
  CHECK(lock->operations.size() == 6);
}

}  // namespace
}  // namespace roundelay::negotiate
