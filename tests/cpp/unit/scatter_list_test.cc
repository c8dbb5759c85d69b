// ScatterList: the bytes that each range of it visits.
#include "collective/scatter_list.h"

#include <random>

#include "tests/cpp/catch.h"

namespace roundelay::collective {
namespace {

using Run = ScatterList::Run;

TEST_CASE("a range visits each of its bytes once, in order, and no empty run", "[scatter]") {
  std::mt19937 random(7);
  for (int trial = 0; trial < 2000; ++trial) {
    // Byte i of the list comes from input[where[i]] and goes to output[where[i]].
    std::vector<std::byte> input(4096), output(4096);
    std::vector<std::size_t> where;
    ScatterList list;
    std::size_t place = 0;
    for (auto runs = random() % 12; runs > 0; --runs) {
      const std::size_t bytes = random() % 3 == 0 ? 0 : random() % (random() % 2 == 0 ? 3 : 300);
      place += random() % 9;
      list.add({input.data() + place, output.data() + place, bytes});
      for (std::size_t i = 0; i < bytes; ++i) where.push_back(place + i);
      place += bytes;
    }
    REQUIRE(list.bytes() == where.size());
    for (int range = 0; range < 10; ++range) {
      const std::size_t offset = random() % (where.size() + 1);
      const std::size_t bytes = random() % (where.size() - offset + 1);
      std::size_t seen = 0, wrong = 0;
      list.for_each(offset, bytes, [&](std::size_t at, const Run& run) {
        if (at != seen || run.bytes == 0) ++wrong;
        for (std::size_t i = 0; i < run.bytes; ++i) {
          const std::size_t expected = where.at(offset + at + i);
          if (run.input + i != input.data() + expected || run.output + i != output.data() + expected) ++wrong;
        }
        seen += run.bytes;
      });
      INFO("trial " << trial << ": " << bytes << " bytes from " << offset << " of " << where.size());
      REQUIRE(seen == bytes);
      REQUIRE(wrong == 0);
    }
  }
}

TEST_CASE("an empty run may have no memory", "[scatter]") {
  ScatterList list;
  list.add({});
  CHECK(list.bytes() == 0);
  list.for_each(0, 0, [](std::size_t, const Run&) { FAIL("visited"); });
}

}  // namespace
}  // namespace roundelay::collective
