// Tables of kernels, one for each instruction set of this build. The best one that the processor runs is
// chosen once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/dtype.h"
#include "kernels/chunks.h"
#include "kernels/kernels.h"
#include "kernels/low_rank.h"
#include "kernels/magnitude.h"

namespace roundelay::kernels {

using ReduceFunction = void (*)(std::byte* accumulator, const std::byte* incoming, std::size_t count);
using ScaleFunction = void (*)(std::byte* destination, const std::byte* source, std::size_t count,
                               Scale scale);
using CastFunction = void (*)(std::byte* destination, const std::byte* source, std::size_t count);
using SumPartsFunction = void (*)(std::byte* destination, std::span<const void* const> parts,
                                  std::size_t count, Scale prescale, Scale scale);
using DotsFunction = Dots (*)(const std::byte* a, const std::byte* b, std::size_t count);
using CombineFunction = void (*)(std::byte* a, double factor_a, const std::byte* b, double factor_b,
                                 std::size_t count);
// Move elements between values and their residual (chunks.h).
using ResidualFunction = void (*)(std::byte* to, std::byte* from, std::size_t count);
using NormFunction = float (*)(const std::byte* values, std::size_t count);
// Copies the values whose magnitudes are in the range, with their positions if `positions` is not null, and
// returns how many there are. There must be room for kCollectSlack elements more. `to` may be `values`.
using CollectFunction = std::size_t (*)(const float* values, std::size_t count, MagnitudeRange range,
                                        float* to, std::uint32_t* positions);
// Adds to counts[t] how many magnitudes reach thresholds[t].
using CountFunction = void (*)(const float* values, std::size_t count, std::span<const Magnitude> thresholds,
                               std::uint64_t* counts);
// Adds up at most kMagnitudeBlock values. The sum means nothing if `most` is not finite.
using MagnitudeSumFunction = MagnitudeSum (*)(const float* values, std::size_t count);
// Those of quantise.h.
using QuantiseFunction = void (*)(std::byte* to, float* numbers, std::size_t count);
using DequantiseFunction = void (*)(float* numbers, const std::byte* from, std::size_t count);
using MoveExactlyFunction = void (*)(float* to, float* numbers, std::size_t count);
using AccumulateFunction = float (*)(const ResidualState& kept, std::byte* values, std::size_t count);
using ProjectFunction = void (*)(const LowRankBlock& block);
using ExpandFunction = void (*)(const LowRankBlock& block, double share);

template <typename T>
constexpr std::size_t index_of(T value) {
  return static_cast<std::size_t>(value);
}

// The kernels for one instruction set.
struct Table {
  std::string_view name;
  // Indexed by dtype and op. Null for Average and Adasum, which are not elementwise.
  std::array<std::array<ReduceFunction, kReduceOpCount>, kDTypeCount> reduce{};
  std::array<ScaleFunction, kDTypeCount> scale{};
  std::array<SumPartsFunction, kDTypeCount> sum_parts{};  // null for bool, whose sum needs no wider type
  std::array<DotsFunction, kDTypeCount> dots{};           // fp32 and fp64 only
  std::array<CombineFunction, kDTypeCount> combine{};     // fp32 and fp64 only
  // Floating types only.
  std::array<ResidualFunction, kDTypeCount> keep{}, give_back{}, take_rounded{};
  std::array<NormFunction, kDTypeCount> norm{};
  std::array<AccumulateFunction, kDTypeCount> accumulate{};
  std::array<ProjectFunction, kDTypeCount> project{}, project_back{};
  std::array<ExpandFunction, kDTypeCount> expand{};
  // fp32 only.
  CollectFunction collect = nullptr;
  CountFunction count = nullptr;
  MagnitudeSumFunction magnitude_sum = nullptr;
  QuantiseFunction quantise = nullptr;
  DequantiseFunction dequantise = nullptr;
  MoveExactlyFunction move_exactly = nullptr;
  // The casts that gradients use in each step. All others are portable (cast.cc).
  CastFunction half_to_float = nullptr;
  CastFunction float_to_half = nullptr;
  CastFunction bfloat_to_float = nullptr;
  CastFunction float_to_bfloat = nullptr;
};

// Returns the tables that this processor can run, from the portable one to the best one.
std::span<const Table> usable_tables();
inline const Table& best_table() { return usable_tables().back(); }

// Indexed by the type to convert to, then the type to convert from. Has no null.
using CastTable = std::array<std::array<CastFunction, kDTypeCount>, kDTypeCount>;
const CastTable& portable_casts();

}  // namespace roundelay::kernels
