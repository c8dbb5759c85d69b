// Finds the k-th largest magnitude exactly, four of its bits at a time, from the highest. It asks for counts
// as Bisection does (bisection.h). Pure; for a GPU, where counting in registers is cheaper than histograms.
#pragma once

#include <cstdint>

#include "kernels/bisection.h"

namespace roundelay::kernels {

class RadixSearch {
 public:
  using Thresholds = Bisection::Thresholds;
  using Counts = Bisection::Counts;
  static constexpr int kBits = 4;
  static_assert(1 << kBits == Bisection::kThresholds);
  static constexpr int kRounds = 8;  // a magnitude has 31 bits

  // Looks for the last of k values; k is at least 1.
  constexpr explicit RadixSearch(std::uint64_t k) : k_(k) {}

  [[nodiscard]] constexpr bool done() const { return shift_ < 0; }
  // Returns the next thresholds, ascending. The first one is the lower bound.
  [[nodiscard]] constexpr Thresholds thresholds() const {
    Thresholds thresholds{};
    for (int i = 0; i < Bisection::kThresholds; ++i) {
      const std::int64_t threshold = low_ + (std::int64_t{i} << shift_);
      thresholds[static_cast<std::size_t>(i)] =
          threshold > kInfinite ? kInfinite + 1 : static_cast<Magnitude>(threshold);
    }
    return thresholds;
  }
  // Takes the numbers of magnitudes that reach thresholds(). Precondition: at least k reach the first one.
  constexpr void narrow(const Counts& counts) {
    std::size_t digit = Bisection::kThresholds - 1;
    for (; counts[digit] < k_; --digit) above_ = counts[digit];
    low_ += static_cast<std::int64_t>(digit) << shift_;
    shift_ -= kBits;
  }

  // Returns the cut. If several magnitudes equal the least selected one, the first of them are taken.
  [[nodiscard]] constexpr Cut cut() const {
    const auto least = static_cast<Magnitude>(low_);
    return {least + 1, least, 0, k_ - above_};
  }

 private:
  std::uint64_t k_;
  int shift_ = kBits * (kRounds - 1);
  std::int64_t low_ = 0;
  std::uint64_t above_ = 0;  // magnitudes beyond the digits that are known
};

}  // namespace roundelay::kernels
