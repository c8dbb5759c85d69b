// Selects the largest of many norms: by a block of threads that wait for each other after each step, or by
// one thread.
//
// The norms are compared as integers, digit by digit from the highest: each digit's bins tell which of them
// holds the last norm that is selected. So the least selected norm is known exactly after kDigits digits.
// Then each thread writes the indices from its own range.
#pragma once

#include <bit>
#include <cstdint>

namespace roundelay::kernels {

// The arguments of select_largest() (chunks.h).
struct Largest {
  std::uint32_t* indices;
  std::uint32_t keep;
  const float* norms;
  std::uint32_t count;
};

// Memory that the threads share.
template <int kThreads>
struct LargestShared {
  static constexpr int kBins = 256;

  std::uint32_t bins[kBins];
  std::uint32_t least;                             // the digits that are known of the least selected norm
  std::uint32_t ties;                              // the number of selected norms that have these digits
  std::uint32_t above[kThreads], equal[kThreads];  // norms in a thread's range; then: those before its range
};

// A norm's order as an integer. Numbers that are not negative have the order of their bits.
constexpr std::uint32_t norm_key(float norm) { return std::bit_cast<std::uint32_t>(norm) & 0x7fffffffU; }

// `Counter{}(word)` adds 1 to a word that other threads add to, too.
template <int kThreads, typename Counter>
class LargestSteps {
 public:
  using Shared = LargestShared<kThreads>;
  static constexpr int kDigits = 4;
  static constexpr int kSteps = 3 * kDigits + 3;

  constexpr LargestSteps(const Largest& work, Shared& shared, std::uint32_t thread)
      : work_(work), shared_(shared), thread_(thread) {}

  // All threads run step 0, then all run step 1, and so on.
  constexpr void run(int step) {
    const int digit = step / 3;
    if (digit < kDigits) {
      if (step % 3 == 0) clear(digit);
      if (step % 3 == 1) count(digit);
      if (step % 3 == 2 && thread_ == 0) narrow();
    } else {
      if (step % 3 == 0) count_range();
      if (step % 3 == 1 && thread_ == 0) add_up();
      if (step % 3 == 2) write();
    }
  }

 private:
  constexpr void clear(int digit) {
    for (std::uint32_t bin = thread_; bin < Shared::kBins; bin += kThreads) shared_.bins[bin] = 0;
    if (digit != 0 || thread_ != 0) return;
    shared_.least = 0;
    shared_.ties = work_.keep;
  }

  // Counts the norms by this digit, if the digits before it are those of the least selected norm.
  constexpr void count(int digit) {
    const int shift = 8 * (kDigits - 1 - digit);
    for (std::uint64_t i = thread_; i < work_.count; i += kThreads) {
      const std::uint64_t key = norm_key(work_.norms[i]);
      if (key >> (shift + 8) == shared_.least) Counter{}(shared_.bins[key >> shift & 0xffU]);
    }
  }

  constexpr void narrow() {
    std::uint32_t bin = Shared::kBins - 1;
    for (; shared_.bins[bin] < shared_.ties; --bin) shared_.ties -= shared_.bins[bin];
    shared_.least = shared_.least << 8 | bin;
  }

  // Calls a function with each index of this thread's range and how its norm compares with the least one.
  template <typename Visit>
  constexpr void for_each_of_range(Visit visit) const {
    const std::uint64_t each = (std::uint64_t{work_.count} + kThreads - 1) / kThreads;
    const std::uint64_t begin = thread_ * each;
    for (std::uint64_t i = begin; i < begin + each && i < work_.count; ++i) {
      const std::uint32_t key = norm_key(work_.norms[i]);
      visit(static_cast<std::uint32_t>(i), key > shared_.least, key == shared_.least);
    }
  }

  constexpr void count_range() {
    std::uint32_t above = 0, equal = 0;
    for_each_of_range([&](std::uint32_t, bool is_above, bool is_equal) {
      above += is_above ? 1 : 0;
      equal += is_equal ? 1 : 0;
    });
    shared_.above[thread_] = above;
    shared_.equal[thread_] = equal;
  }

  constexpr void add_up() {
    std::uint32_t above = 0, equal = 0;
    for (int i = 0; i < kThreads; ++i) {
      const std::uint32_t more_above = shared_.above[i], more_equal = shared_.equal[i];
      shared_.above[i] = above;
      shared_.equal[i] = equal;
      above += more_above;
      equal += more_equal;
    }
  }

  constexpr void write() {
    std::uint32_t equal = shared_.equal[thread_];
    std::uint32_t at = shared_.above[thread_] + (equal < shared_.ties ? equal : shared_.ties);
    for_each_of_range([&](std::uint32_t i, bool is_above, bool is_equal) {
      const bool selected = is_above || (is_equal && equal < shared_.ties);
      equal += is_equal ? 1 : 0;
      if (selected) work_.indices[at++] = i;
    });
  }

  const Largest work_;
  Shared& shared_;
  const std::uint32_t thread_;
};

}  // namespace roundelay::kernels
