// Selects the k largest magnitudes of many fp32 numbers, or nearly so. Thread-safe; allocates memory for the
// values that may be among them (std::bad_alloc); memory may be unaligned.
#pragma once

#include <cstdint>
#include <span>

namespace roundelay::kernels {

enum class Selection {
  kMsTopK,  // a threshold by bisection, and a random run of the values just below it (bisection.h)
  kRadix,   // the exact k largest; if some are equal, the first are taken
};

// `samplings` and `seed` are for kMsTopK: the number of bisection steps, and the start of the random run.
struct TopKRule {
  Selection how = Selection::kRadix;
  int samplings = 20;
  std::uint64_t seed = 0;
};

// Writes as many values as the spans hold, with their indices, in the order of the indices. Each index comes
// once. There are at least as many values as places in `chosen`, which is as long as `indices`.
//
// Infinities and NaN have the same magnitude, above all others: the first ones are taken if there are more
// than k. MSTopK's mean and maximum are those of the finite values.
//
// The result depends on nothing but the arguments: it has the same bits with each instruction set.
void top_k(std::span<const float> values, const TopKRule& rule, std::span<float> chosen,
           std::span<std::int64_t> indices);

}  // namespace roundelay::kernels
