// Regions after a segment, as in separate processes: every member maps the memory itself.
#include "collective/shm/shared_regions.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "tests/cpp/catch.h"

namespace roundelay::collective {
namespace {

using platform::SharedMemory;

constexpr std::size_t kSegment = 8192;

Group member_of_two(int index) { return {0, {3, 4}, index}; }

struct Two {
  Two() {
    auto made = SharedMemory::create(kSegment);
    REQUIRE(made.ok());
    first = std::make_shared<SharedMemory>(std::move(*made));
    auto mapped = first->map_part(0, kSegment);
    REQUIRE(mapped.ok());
    second = std::make_shared<SharedMemory>(std::move(*mapped));
  }
  std::shared_ptr<SharedMemory> first, second;
};

RegionMaker regions(const std::shared_ptr<SharedMemory>& memory, int index) {
  return shared_regions(memory, member_of_two(index),
                        std::make_shared<SharedHeap>(memory, member_of_two(index), 1 << 20));
}

std::size_t pages_of(const SharedMemory& memory) {
  struct stat about {};
  REQUIRE(::fstat(memory.fd().get(), &about) == 0);
  return static_cast<std::size_t>(about.st_blocks) * 512 / 4096;
}

TEST_CASE("members reach each other's parts of a region, whoever is first and whatever the key", "[shm]") {
  const Two two;
  const RegionMaker first = regions(two.first, 0);
  const RegionMaker second = regions(two.second, 1);
  for (const std::uint64_t key : {1000ULL, 1ULL, (1ULL << 22) - 1}) {
    const auto b = second(key, 10001), a = first(key, 10001);
    REQUIRE((a.ok() && b.ok()));
    CHECK((*a)->own.size() == 10001);
    CHECK((*a)->ranks == std::vector<int>{3, 4});
    CHECK(std::count((*a)->own.begin(), (*a)->own.end(), std::byte{0}) == 10001);
    std::memset((*a)->own.data(), 1, 10001);
    std::memset((*b)->own.data(), 2, 10001);
    CHECK((*a)->parts[0] == (*a)->own.data());
    CHECK(std::count((*a)->parts[1], (*a)->parts[1] + 10001, std::byte{2}) == 10001);
    CHECK(std::count((*b)->parts[0], (*b)->parts[0] + 10001, std::byte{1}) == 10001);
  }
}

TEST_CASE("a region takes its pages when it is made and gives them back", "[shm]") {
  const Two two;
  const std::size_t before = pages_of(*two.first);
  {
    const auto region = regions(two.first, 0)(5, 1 << 20);
    REQUIRE(region.ok());
    CHECK(pages_of(*two.first) == before + 256);
  }
  CHECK(pages_of(*two.first) == before);
}

TEST_CASE("a key is free again when nobody holds its last region", "[shm]") {
  const Two two;
  const RegionMaker make = regions(two.first, 0);
  const RegionMaker other = regions(two.second, 1);
  auto region = make(5, 10000);
  REQUIRE(region.ok());
  std::memset((*region)->own.data(), 1, 10000);
  const auto refused = make(5, 10000);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().code() == StatusCode::kUnavailable);
  CHECK(refused.status().message().find("region with key 5") != std::string::npos);
  CHECK((*region)->own.back() == std::byte{1});
  CHECK(make(6, 10000).ok());
  CHECK(other(5, 10000).ok());  // another member's part
  CHECK_FALSE(make(7, std::size_t{1} << 41).ok());
  CHECK(make(7, 10000).ok());  // an attempt that failed does not keep its key
  *region = nullptr;
  region = make(5, 10000);
  REQUIRE(region.ok());
  CHECK((*region)->own.back() == std::byte{0});
}

TEST_CASE("a forked child has a copy of its parent's part", "[shm]") {
  const Two two;
  auto region = regions(two.first, 1)(5, 10000);
  REQUIRE(region.ok());
  const ByteSpan own = (*region)->own;
  std::memset(own.data(), 1, own.size());
  const pid_t child = ::fork();
  if (child == 0) {
    bool right = std::count(own.begin(), own.end(), std::byte{1}) == 10000;
    std::memset(own.data(), 2, own.size());
    right = right && std::count(own.begin(), own.end(), std::byte{2}) == 10000;
    *region = nullptr;  // gives nothing back
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(std::count(own.begin(), own.end(), std::byte{1}) == 10000);
}

TEST_CASE("a region for which there is no memory or no place is an error with the reason", "[shm]") {
  const Two two;
  const RegionMaker make = regions(two.first, 0);
  CHECK(make(1ULL << 22, 4096).status().code() == StatusCode::kUnavailable);
  CHECK(make(1, std::size_t{1} << 50).status().code() == StatusCode::kUnavailable);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{1 << 20, before.rlim_max};
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);  // as Python does
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const Status error = make(1, 4096).status();
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  CHECK(error.code() == StatusCode::kUnavailable);
  CHECK(error.message().find("fallocate of 4096 bytes") != std::string::npos);
}

}  // namespace
}  // namespace roundelay::collective
