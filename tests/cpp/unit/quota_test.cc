// How many chunks of each bucket a run of csc sends, and which chunks there are to choose from.
#include <cmath>
#include <random>

#include "compress/chunk_map.h"
#include "compress/quota.h"
#include "tests/cpp/catch.h"

namespace roundelay::compress {
namespace {

constexpr double kKeeps[] = {1e-9, 0.001, 0.01, 0.1, 0.25, 1.0 / 3, 0.5, 0.75, 0.999, 1};

// The formula of quota.h with real numbers.
double exact(double keep, double before, double chunks, double phase) {
  return std::floor(keep * (before + chunks) + phase) - std::floor(keep * before + phase);
}

TEST_CASE("a quota is the share of the chunks, within one", "[technique][csc]") {
  for (const double keep : kKeeps) {
    const std::uint64_t share = share_of(keep);
    for (std::uint64_t chunks = 0; chunks < 200; ++chunks) {
      for (std::uint64_t run = 0; run < 100; ++run) {
        const std::uint64_t before = run * 37 + chunks;
        const std::size_t got = quota(share, before, chunks, run);
        INFO(keep << " of " << chunks << " after " << before << ", run " << run);
        REQUIRE(got <= chunks);
        REQUIRE(std::abs(static_cast<double>(got) - keep * static_cast<double>(chunks)) < 1.0 + 1e-6);
        const double phase = std::ldexp(static_cast<double>(phase_of(run)), -32);
        const double keep_used = std::ldexp(static_cast<double>(share), -32);
        REQUIRE(static_cast<double>(got) ==
                exact(keep_used, static_cast<double>(before), static_cast<double>(chunks), phase));
      }
    }
  }
}

TEST_CASE("keep=1 sends all chunks, and the least keep is not zero", "[technique][csc]") {
  CHECK(share_of(1) == std::uint64_t{1} << 32);
  CHECK(share_of(0.5) == std::uint64_t{1} << 31);
  CHECK(share_of(1e-300) == 1);
  for (const std::uint64_t before : {std::uint64_t{0}, std::uint64_t{12345}, std::uint64_t{1} << 31}) {
    for (const std::uint64_t chunks : {0U, 1U, 2U, 1000U, 1U << 31}) {
      for (std::uint64_t run = 0; run < 50; ++run) REQUIRE(quota(share_of(1), before, chunks, run) == chunks);
    }
  }
}

TEST_CASE("the buckets of a run send keep of all chunks together, within one", "[technique][csc]") {
  std::mt19937 random(1);
  for (const double keep : kKeeps) {
    for (int round = 0; round < 50; ++round) {
      std::uint64_t before = 0, sum = 0;
      const std::uint64_t run = random();
      for (std::size_t buckets = 1 + random() % 40; buckets > 0; --buckets) {
        const std::uint64_t chunks = random() % 64;
        sum += quota(share_of(keep), before, chunks, run);
        before += chunks;
      }
      REQUIRE(std::abs(static_cast<double>(sum) - keep * static_cast<double>(before)) < 1.0 + 1e-6);
    }
  }
}

TEST_CASE("every bucket gets its share over the runs, and none waits long", "[technique][csc]") {
  for (const double keep : {0.01, 0.1, 0.3}) {
    for (std::uint64_t before = 0; before < 40; ++before) {
      const auto most =
          static_cast<std::uint64_t>(3 / keep);  // the gaps of such a sequence are below 3 / keep
      std::uint64_t sum = 0, last = 0;
      constexpr std::uint64_t kRuns = 3000;
      for (std::uint64_t run = 0; run < kRuns; ++run) {
        const std::size_t got = quota(share_of(keep), before, 1, run);
        sum += got;
        if (got > 0) last = run;
        REQUIRE(run - last <= most);
      }
      REQUIRE(std::abs(static_cast<double>(sum) - keep * kRuns) < 8);
    }
  }
}

// Some parameters with gaps between them, as in a pool.
std::vector<Slice> some_parameters(std::mt19937& random) {
  std::vector<Slice> parameters;
  std::size_t at = 0;
  for (std::size_t n = 1 + random() % 12; n > 0; --n) {
    const std::size_t count = random() % 3 == 0 ? random() % 4 : random() % 100;
    parameters.push_back({at, count});
    at += (count + 15) / 16 * 16;
  }
  return parameters;
}

TEST_CASE("a chunk is lossy if it has elements of a parameter that is not dense", "[technique][csc]") {
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    const std::vector<Slice> parameters = some_parameters(random);
    const std::size_t count = parameters.back().first + parameters.back().count + 1;
    const std::size_t chunk = 1 + random() % 60;
    std::vector<std::uint32_t> dense;
    std::vector<bool> lossy((count + chunk - 1) / chunk);
    std::size_t dense_elements = 0;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Slice& slice = parameters[i];
      if (random() % 2 == 0) {
        dense.push_back(static_cast<std::uint32_t>(i));
        dense_elements += slice.count;
      } else {
        for (std::size_t e = slice.first; e < slice.first + slice.count; ++e) lossy[e / chunk] = true;
      }
    }
    const ChunkMap map(count, parameters, chunk, dense);
    std::vector<bool> got(lossy.size());
    std::size_t end = 0;
    map.each_row([&](std::size_t first, std::size_t chunks) {
      REQUIRE((first > end || end == 0));  // rows do not touch
      REQUIRE(chunks > 0);
      end = first + chunks;
      std::fill_n(got.begin() + static_cast<std::ptrdiff_t>(first), chunks, true);
    });
    REQUIRE(got == lossy);
    REQUIRE(map.lossy_chunks() == static_cast<std::size_t>(std::count(lossy.begin(), lossy.end(), true)));
    REQUIRE(map.dense_elements() == dense_elements);
    std::vector<std::size_t> firsts;
    map.each_dense([&](const Slice& slice) { firsts.push_back(slice.first); });
    REQUIRE(firsts.size() == dense.size());
    for (std::size_t i = 0; i < dense.size(); ++i) REQUIRE(firsts[i] == parameters[dense[i]].first);
  }
}

TEST_CASE("a bucket without parameters is one of a single parameter", "[technique][csc]") {
  const ChunkMap map(10, {}, 4, {});
  CHECK(map.lossy_chunks() == 3);
  CHECK(map.dense_elements() == 0);
  CHECK(map.first_element() == 0);
}

}  // namespace
}  // namespace roundelay::compress
