// The bisection of MSTopK: finds a threshold that about k magnitudes reach. It asks for the counts of 16
// thresholds at a time, and takes four steps with them. Pure; the same on the CPU and on a GPU.
//
// Source: Shi et al., arXiv 2010.10458. The thresholds are mean + p (max - mean), in fp64, rounded to fp32,
// for p from 0 to 1. If fewer than k magnitudes reach the mean, the thresholds are p mean instead.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/magnitude.h"

namespace roundelay::kernels {

// Says which values are selected. All magnitudes from `above` on are. The magnitudes from `band` on and below
// `above` are the band: in the order of their indices, `skip` of them are passed over, and the next `take`
// are selected.
struct Cut {
  Magnitude above = 0;
  Magnitude band = 0;
  std::uint64_t skip = 0;
  std::uint64_t take = 0;
};

// A threshold, and the number of magnitudes that reach it.
struct Reached {
  Magnitude threshold = 0;
  std::uint64_t count = 0;
};

// The mean and the maximum of the finite magnitudes, and the number of those that are not finite.
struct MagnitudeStatistics {
  double mean = 0;
  double most = 0;
  std::uint64_t infinite = 0;
};

class Bisection {
 public:
  static constexpr int kAtOnce = 4;  // steps with the counts of one call
  static constexpr int kThresholds = 1 << kAtOnce;
  static constexpr int kMostSteps = 48;  // thresholds of fp32 do not change any more after this many
  using Thresholds = std::array<Magnitude, kThresholds>;
  using Counts = std::array<std::uint64_t, kThresholds>;

  // Looks for k values, of which at most k are not finite, in `samplings` steps.
  constexpr Bisection(const MagnitudeStatistics& statistics, std::uint64_t k, int samplings)
      : k_(k),
        left_(samplings < kMostSteps ? samplings : kMostSteps),
        least_(statistics.mean < statistics.most ? statistics.mean : statistics.most),
        most_(statistics.most),
        above_{kInfinite, statistics.infinite} {
    if (above_.count == k) left_ = 0;
  }

  [[nodiscard]] constexpr bool done() const { return left_ == 0; }
  // Returns the next thresholds, ascending. The first one is the lower bound.
  [[nodiscard]] constexpr Thresholds thresholds() const {
    Thresholds thresholds{};
    for (int i = 0; i < kThresholds; ++i) thresholds[static_cast<std::size_t>(i)] = threshold(i);
    return thresholds;
  }
  // Takes the numbers of magnitudes that reach thresholds().
  constexpr void narrow(const Counts& counts) {
    if (counts.front() <= k_) {  // only in the first call: the mean is too high
      above_ = {threshold(0), counts.front()};
      most_ = least_;
      least_ = 0;
      if (above_.count == k_) left_ = 0;
      return;
    }
    below_ = {threshold(0), counts.front()};
    int low = 0, high = kThresholds;
    for (; high - low > 1 && left_ > 0; --left_) {
      const int middle = (low + high) / 2;
      const Reached reached{threshold(middle), counts[static_cast<std::size_t>(middle)]};
      if (reached.count <= k_) {
        high = middle;
        above_ = reached;
      } else {
        low = middle;
        below_ = reached;
      }
    }
    if (above_.count == k_) left_ = 0;
    const double from = from_, width = to_ - from_;
    from_ = from + width * low / kThresholds;
    to_ = from + width * high / kThresholds;
  }

  // The lowest threshold that at most k magnitudes reach, and the highest one that more than k reach.
  [[nodiscard]] constexpr const Reached& above() const { return above_; }
  [[nodiscard]] constexpr const Reached& below() const { return below_; }

  // Returns the cut. Its band's values are a run of neighbours that starts at a random place.
  [[nodiscard]] constexpr Cut cut(std::uint64_t seed) const {
    const std::uint64_t take = k_ - above_.count;
    if (take == 0) return {above_.threshold, above_.threshold, 0, 0};
    const std::uint64_t band = below_.count - above_.count;
    return {above_.threshold, below_.threshold, mixed(seed) % (band - take + 1), take};
  }

 private:
  // Returns a random number (splitmix64).
  static constexpr std::uint64_t mixed(std::uint64_t seed) {
    std::uint64_t bits = seed + 0x9e3779b97f4a7c15U;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9U;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111ebU;
    return bits ^ bits >> 31;
  }

  // Returns threshold number i of kThresholds between the bounds. The fractions are exact.
  [[nodiscard]] constexpr Magnitude threshold(int i) const {
    const double at = from_ + (to_ - from_) * i / kThresholds;
    const double scaled = at * (most_ - least_);
    return magnitude_of(static_cast<float>(least_ + scaled));
  }

  std::uint64_t k_;
  int left_;  // steps
  double least_, most_;
  double from_ = 0, to_ = 1;
  Reached above_, below_{};
};

}  // namespace roundelay::kernels
