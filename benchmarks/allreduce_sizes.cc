// Prints how long allreduces take whose messages take time (collective/inproc/simulated_network.h), as one
// JSON object.
//
//   bench_allreduce_sizes MEMBERS ALPHA_US MBIT     (python -m benchmarks.allreduce_sizes builds, runs and
//   draws it)
//
// The clock is the network's: the numbers are the same on every machine.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "tests/cpp/simulated_allreduce.h"

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: bench_allreduce_sizes MEMBERS ALPHA_US MBIT\n"), 2;
  const int members = std::atoi(argv[1]);
  const roundelay::WireRate rate{std::chrono::microseconds(std::atoi(argv[2])), std::atof(argv[3]) * 1e6 / 8};
  if (members < 2 || rate.bytes_per_second <= 0) return std::fprintf(stderr, "bad numbers\n"), 2;
  try {
    const char* separator = "{";
    for (const char* algorithm : {"recursive_doubling", "halving_doubling", "ring"}) {
      for (std::size_t bytes = 256; bytes <= (4U << 20U); bytes *= 2) {
        const double seconds = roundelay::allreduce_seconds(algorithm, members, bytes, rate);
        std::printf("%s\"%s %zu\": %.9f", separator, algorithm, bytes, seconds);
        separator = ",\n ";
      }
    }
    std::printf("}\n");
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
  }
  return 0;
}
