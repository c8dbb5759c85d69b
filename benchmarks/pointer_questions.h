// Measures what a question where memory lies costs, from the driver and from the pointer cache, while several
// threads ask.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "platform/device/pointer_cache.h"

namespace roundelay::benchmarks {

// Returns the median over rounds of the nanoseconds that one question takes one of `threads` threads.
// `ask(address)` returns whether it had an answer.
template <class Ask>
double nanoseconds(int threads, const std::vector<const void*>& addresses, int questions, const Ask& ask) {
  constexpr int kRounds = 11;
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    const TimePoint begin = steady_now();
    std::vector<std::thread> all;
    for (int thread = 0; thread < threads; ++thread) {
      all.emplace_back([&, thread] {
        for (int i = 0; i < questions; ++i) {
          if (!ask(addresses[static_cast<std::size_t>(i + thread) % addresses.size()])) std::abort();
        }
      });
    }
    for (std::thread& one : all) one.join();
    rounds.push_back(std::chrono::duration<double, std::nano>(steady_now() - begin).count() / questions);
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  return rounds[kRounds / 2];
}

// Prints an object of JSON: {"driver": ..., "threads": {"1": {"driver_ns": ..., "cache_ns": ...}, "8": ...}}.
inline void print_questions(const char* name, PointerDriver& driver,
                            const std::vector<const void*>& addresses) {
  pointers::PointerCache cache(driver);
  for (const void* const address : addresses) {
    if (!cache.locate(address).ok()) std::abort();
  }
  std::printf("{\"driver\": \"%s\", \"allocations\": %zu, \"threads\": {", name, addresses.size());
  const char* separator = "";
  for (const int threads : {1, 8}) {
    const double asked = nanoseconds(threads, addresses, 10'000,
                                     [&](const void* address) { return driver.ask(address).ok(); });
    const double cached = nanoseconds(threads, addresses, 100'000,
                                      [&](const void* address) { return cache.locate(address).ok(); });
    std::printf("%s\"%d\": {\"driver_ns\": %.1f, \"cache_ns\": %.1f}", separator, threads, asked, cached);
    separator = ", ";
  }
  std::printf("}}");
}

}  // namespace roundelay::benchmarks
