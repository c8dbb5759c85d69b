// Kernels that take turns with memcpy, for benchmarks in C++.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace roundelay::kernels {

// One way to move bytes.
struct Contender {
  std::string name;
  std::size_t bytes;  // read and written
  std::function<void()> work;
  std::vector<double> seconds{};

  [[nodiscard]] double median() {
    const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
    std::nth_element(seconds.begin(), middle, seconds.end());
    return *middle;
  }
  [[nodiscard]] double bandwidth() { return static_cast<double>(bytes) / median(); }
};

// All contenders work once in each round; the first one is the copy that the others are compared with.
class Turns {
 public:
  void add(std::string name, std::size_t bytes, std::function<void()> work) {
    contenders_.push_back({std::move(name), bytes, std::move(work)});
  }
  void run(int rounds) {
    for (int round = 0; round <= rounds; ++round) {
      for (Contender& one : contenders_) {
        const auto begin = std::chrono::steady_clock::now();
        one.work();
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        if (round > 0) one.seconds.push_back(took.count());
      }
    }
  }
  // Prints one JSON object: bandwidths as fractions of the copy's, and seconds.
  void print(std::string_view variant, std::size_t elements) {
    const double copy = contenders_.front().bandwidth();
    std::printf("{\"variant\": \"%s\", \"elements\": %zu, \"copy_gb_per_s\": %.2f, \"fractions\": {",
                std::string(variant).c_str(), elements, copy / 1e9);
    each([&](Contender& one) { return one.bandwidth() / copy; });
    std::printf("},\n \"seconds\": {");
    each([](Contender& one) { return one.median(); });
    std::printf("}}\n");
  }

 private:
  template <typename Number>
  void each(Number number) {
    for (std::size_t i = 1; i < contenders_.size(); ++i)
      std::printf("%s\n  \"%s\": %.3g", i == 1 ? "" : ",", contenders_[i].name.c_str(),
                  number(contenders_[i]));
  }

  std::vector<Contender> contenders_;
};

}  // namespace roundelay::kernels
