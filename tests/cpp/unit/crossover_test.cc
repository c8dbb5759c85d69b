// The sizes at which another algorithm becomes the fastest, over messages that take time: they lie where the
// model says, T = steps alpha + bytes / W.
#include <bit>
#include <cmath>
#include <cstddef>
#include <string>

#include "tests/cpp/catch.h"
#include "tests/cpp/simulated_allreduce.h"

namespace roundelay {
namespace {

constexpr WireRate kRate{std::chrono::microseconds(50), 125e6};  // 1 Gbit/s

// The model's steps, and the bytes on the critical path for each byte of the sum.
struct Model {
  double steps;
  double bytes;
  [[nodiscard]] double seconds(double size) const {
    return steps * std::chrono::duration<double>(kRate.alpha).count() + bytes * size / kRate.bytes_per_second;
  }
};

Model model_of(const std::string& algorithm, int members) {
  const double ring_bytes = 2.0 * (members - 1) / members;
  if (algorithm == "ring") return {2.0 * (members - 1), ring_bytes};
  const auto rounds = static_cast<unsigned>(members);
  const double log2 = std::bit_width(rounds) - 1;
  // Where members are no power of two, some give their vector to a neighbour first, and get the sum back.
  const double folding = std::has_single_bit(rounds) ? 0 : 2;
  if (algorithm == "recursive_doubling") return {log2 + folding, log2 + folding};
  const double halves = std::bit_floor(rounds);
  return {2 * log2 + folding, 2 * (halves - 1) / halves + folding};  // halving_doubling
}

// Returns the size from which `large` is faster than `small`, which is faster at `from` and slower at `to`.
double crossover(const std::string& small, const std::string& large, int members, double from, double to) {
  const auto faster = [&](double size) {
    const auto bytes = static_cast<std::size_t>(size) / 4 * 4;
    return allreduce_seconds(small, members, bytes, kRate) < allreduce_seconds(large, members, bytes, kRate);
  };
  REQUIRE(faster(from));
  REQUIRE_FALSE(faster(to));
  while (to / from > 1.05) {
    const double middle = std::sqrt(from * to);
    (faster(middle) ? from : to) = middle;
  }
  return std::sqrt(from * to);
}

TEST_CASE("the time of an algorithm is its steps and bytes", "[crossover]") {
  for (const int members : {2, 4, 8, 16}) {
    for (const std::string algorithm : {"ring", "recursive_doubling", "halving_doubling"}) {
      for (const std::size_t size : {std::size_t{1024}, std::size_t{1} << 20}) {
        INFO(algorithm << ", " << members << " members, " << size << " bytes");
        const double model = model_of(algorithm, members).seconds(static_cast<double>(size));
        CHECK(allreduce_seconds(algorithm, members, size, kRate) == Approx(model).epsilon(0.1));
      }
    }
  }
}

TEST_CASE("another algorithm wins from the size that the model gives", "[crossover]") {
  struct Pair {
    std::string small, large;
    int members;
  };
  for (const auto& [small, large, members] :
       {Pair{"recursive_doubling", "halving_doubling", 8}, Pair{"recursive_doubling", "halving_doubling", 16},
        Pair{"recursive_doubling", "ring", 4}, Pair{"recursive_doubling", "ring", 8},
        Pair{"halving_doubling", "ring", 6}, Pair{"halving_doubling", "ring", 7},
        Pair{"recursive_doubling", "ring", 5}}) {
    const Model one = model_of(small, members);
    const Model other = model_of(large, members);
    const double alpha = std::chrono::duration<double>(kRate.alpha).count();
    const double expected =
        (other.steps - one.steps) * alpha * kRate.bytes_per_second / (one.bytes - other.bytes);
    INFO(small << " to " << large << ", " << members << " members, by the model at " << expected << " bytes");
    const double found = crossover(small, large, members, expected / 8, expected * 8);
    CHECK(found > expected / 1.5);
    CHECK(found < expected * 1.5);
  }
}

}  // namespace
}  // namespace roundelay
