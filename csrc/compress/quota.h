// Computes the number of chunks of a bucket that a run sends. It computes with whole numbers, so that all
// ranks agree, whatever compiler made them.
//
// The buckets of a pool have their chunks in one row: a bucket with L of them comes after `before` others. In
// run n it may send
//   floor(keep * (before + L) + phi) - floor(keep * before + phi), phi = fraction of n / golden ratio.
// The terms of neighbours cancel, so that the buckets of one run send keep * all chunks together, within one.
// The fractions of n / golden ratio are spread evenly, so that each bucket gets its share over the runs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace roundelay::compress {

// Returns keep, above 0 and at most 1, in units of 2^-32, rounded up.
constexpr std::uint64_t share_of(double keep) {
  const double units = keep * 0x1p32;
  const auto whole = static_cast<std::uint64_t>(units);
  return static_cast<double>(whole) < units ? whole + 1 : whole;
}

// Returns the fraction of run / golden ratio in units of 2^-32. The error is below run / 2 units.
constexpr std::uint32_t phase_of(std::uint64_t run) {
  constexpr std::uint32_t kGoldenRatio = 0x9e3779b9;  // its reciprocal
  return static_cast<std::uint32_t>(run) * kGoldenRatio;
}

// Returns the quota of a bucket with `chunks` chunks in run `run`. `share` is that of share_of(). Together
// `before` and `chunks` are less than 2^32.
constexpr std::size_t quota(std::uint64_t share, std::uint64_t before, std::uint64_t chunks,
                            std::uint64_t run) {
  const std::uint64_t phase = phase_of(run);
  const std::uint64_t end = share * (before + chunks) + phase, begin = share * before + phase;
  return static_cast<std::uint32_t>((end >> 32) - (begin >> 32));  // products may exceed 64 bits
}

}  // namespace roundelay::compress
