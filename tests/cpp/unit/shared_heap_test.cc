// Heaps after a segment, as in separate processes: every member maps the memory itself.
#include "collective/shm/shared_heap.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tests/cpp/catch.h"

namespace roundelay::collective {
namespace {

using platform::SharedMemory;
using shm::Segment;

constexpr std::size_t kPage = Segment::kPageBytes, kHeap = 16 * kPage;

Group member_of_two(int index) { return {0, {3, 4}, index}; }

struct Two {
  explicit Two(std::size_t second_bytes = kHeap) {
    auto made = SharedMemory::create(Segment::bytes(2));
    REQUIRE(made.ok());
    memory = std::make_shared<SharedMemory>(std::move(*made));
    auto mapped = memory->map_part(0, Segment::bytes(2));
    REQUIRE(mapped.ok());
    first = std::make_shared<SharedHeap>(memory, member_of_two(0), kHeap);
    second = std::make_shared<SharedHeap>(std::make_shared<SharedMemory>(std::move(*mapped)),
                                          member_of_two(1), second_bytes);
  }
  [[nodiscard]] std::size_t pages() const {
    struct stat about {};
    REQUIRE(::fstat(memory->fd().get(), &about) == 0);
    return static_cast<std::size_t>(about.st_blocks) * 512 / kPage;
  }

  std::shared_ptr<SharedMemory> memory;
  std::shared_ptr<SharedHeap> first, second;
};

ByteSpan own(const Result<RegionPtr>& region) {
  REQUIRE(region.ok());
  return (*region)->own;
}

TEST_CASE("members reach what the others allocate, each at places of its own", "[shm]") {
  const Two two;
  const auto a = two.first->allocate(10001), before = two.second->allocate(5),
             b = two.second->allocate(10001);
  CHECK(std::ranges::count(own(b), std::byte{0}) == 10001);
  std::memset(own(a).data(), 1, 10001);
  std::memset(own(b).data(), 2, 10001);
  const auto of_a = two.first->find(own(a)), of_b = two.second->find(own(b).subspan(7));
  REQUIRE((of_a && of_b));
  CHECK(*of_a == 0);
  CHECK(*of_b == kPage + 7);
  CHECK(two.first->at(0, *of_a) == own(a).data());
  CHECK(std::count(two.first->at(1, *of_b), two.first->at(1, *of_b) + 9994, std::byte{2}) == 9994);
  CHECK(std::count(two.second->at(0, *of_a), two.second->at(0, *of_a) + 10001, std::byte{1}) == 10001);
}

TEST_CASE("nothing is found before all members have mapped the heaps, nor elsewhere", "[shm]") {
  const Two two;
  const std::vector<std::byte> elsewhere(100);
  CHECK_FALSE(two.first->find(elsewhere));
  const auto a = two.first->allocate(100);
  CHECK_FALSE(two.first->find(own(a)));
  const auto b = two.second->allocate(100);
  CHECK(two.first->find(own(a)));
  CHECK_FALSE(two.first->find(elsewhere));
  CHECK_FALSE(two.first->find({two.first->at(1, 0), 100}));
  const Two differ(2 * kHeap);  // they see nodes of different sizes
  const auto c = differ.first->allocate(100), d = differ.second->allocate(100);
  CHECK_FALSE(differ.first->find(own(c)));
  CHECK_FALSE(differ.second->find(own(d)));
}

TEST_CASE("a heap gives pages back and uses their places again", "[shm]") {
  const Two two;
  CHECK(two.first->allocate(1).ok());  // maps the heaps, and says so in the segment
  const std::size_t before = two.pages();
  std::vector<RegionPtr> parts;
  for (int i = 0; i < 4; ++i) parts.push_back(*two.first->allocate(4 * kPage));
  CHECK(two.pages() == before + 16);
  const auto full = two.first->allocate(1);
  CHECK(full.status().code() == StatusCode::kUnavailable);
  CHECK(full.status().message() == "this rank's part of the node's memory has no 1 bytes in one piece");
  std::byte* const place = parts[1]->own.data();
  std::memset(place, 1, 4 * kPage);
  for (const std::size_t i : {3, 1}) parts[i] = nullptr;
  CHECK(two.pages() == before + 8);
  CHECK_FALSE(two.first->allocate(5 * kPage).ok());  // two pieces
  parts[2] = nullptr;                                // which joins both
  const auto joined = two.first->allocate(12 * kPage);
  CHECK(own(joined).data() == place);
  CHECK(std::ranges::count(own(joined), std::byte{0}) == 12 * kPage);
}

TEST_CASE("memory of a heap outlives its owner, and a forked child has a copy", "[shm]") {
  Two two;
  auto region = two.second->allocate(10000);
  const ByteSpan bytes = own(region);
  two = Two();
  std::memset(bytes.data(), 1, bytes.size());
  const pid_t child = ::fork();
  if (child == 0) {
    bool right = std::ranges::count(bytes, std::byte{1}) == 10000;
    std::memset(bytes.data(), 2, bytes.size());
    right = right && std::ranges::count(bytes, std::byte{2}) == 10000;
    *region = nullptr;  // gives nothing back
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(std::ranges::count(bytes, std::byte{1}) == 10000);
}

TEST_CASE("without addresses for all heaps there is none, and the reason", "[shm]") {
  const Two two;
  const auto large = std::make_shared<SharedHeap>(two.memory, member_of_two(0), std::size_t{1} << 60);
  const Status error = large->allocate(100).status();
  CHECK(error.code() == StatusCode::kUnavailable);
  CHECK(error.message().find("mmap of") != std::string::npos);
  CHECK(heap_bytes(member_of_two(0)) % kPage == 0);
}

}  // namespace
}  // namespace roundelay::collective
