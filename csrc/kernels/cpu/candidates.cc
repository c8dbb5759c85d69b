#include "kernels/cpu/candidates.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "kernels/cpu/select_loops.h"

namespace roundelay::kernels {
namespace {

constexpr std::size_t kFewValues = 1 << 14;  // a sample of fewer does not pay
constexpr std::size_t kLeastSample = 1 << 12, kMostSample = 1 << 14;
constexpr std::size_t kValuesPerSample = 256;
constexpr std::size_t kLeastRest = 4;  // the part of the values that are no candidates is at least 1 / 4

// Calls a function with each block of values and the index of its first one.
template <typename Visit>
void for_each_block(std::span<const float> values, Visit visit) {
  for (std::size_t first = 0; first < values.size(); first += kMagnitudeBlock)
    visit(values.subspan(first, std::min(kMagnitudeBlock, values.size() - first)), first);
}

// A number of a fixed sequence without pattern.
std::uint64_t scattered(std::uint64_t number) {
  number = (number + 1) * 0x9e3779b97f4a7c15U;
  return (number ^ number >> 29) * 0xbf58476d1ce4e5b9U >> 32;
}

// Returns the magnitudes of one value of each of equally long stretches.
std::vector<Magnitude> sample_of(std::span<const float> values) {
  const std::size_t size = std::clamp(values.size() / kValuesPerSample, kLeastSample, kMostSample);
  const std::size_t stretch = values.size() / size;
  std::vector<Magnitude> sample(size);
  for (std::size_t i = 0; i < size; ++i)
    sample[i] = magnitude_of(values[i * stretch + scattered(i) % stretch]);
  return sample;
}

// Returns how many of a sample must reach the floor so that more than k values are nearly certain to reach
// it: four standard deviations more than expected.
std::size_t rank_in_sample(double expected) {
  return static_cast<std::size_t>(expected + 4 * std::sqrt(expected) + 4);
}

// Values that are not finite count as zeros, which change no sum.
MagnitudeStatistics finite_statistics(const Table& table, std::span<const float> values) {
  MagnitudeStatistics statistics;
  double sum = 0;
  std::vector<float> finite(kMagnitudeBlock);
  for_each_block(values, [&](std::span<const float> block, std::size_t /*first*/) {
    std::transform(block.begin(), block.end(), finite.begin(), [&](float value) {
      const bool infinite = magnitude_of(value) == kInfinite;
      statistics.infinite += infinite ? 1 : 0;
      return infinite ? 0.0F : value;
    });
    const MagnitudeSum found = table.magnitude_sum(finite.data(), block.size());
    sum += found.sum;
    statistics.most = std::max(statistics.most, static_cast<double>(number_of(found.most)));
  });
  const std::size_t count = values.size() - statistics.infinite;
  if (count > 0) statistics.mean = sum / static_cast<double>(count);
  return statistics;
}

}  // namespace

Candidates::Candidates(std::span<const float> values) : values_(values) {}

std::optional<Candidates> Candidates::collect(const Table& table, std::span<const float> values,
                                              Magnitude floor, std::size_t most) {
  auto copies = std::make_shared<Copies>(most + kMagnitudeBlock + kCollectSlack);
  std::size_t kept = 0;
  for_each_block(values, [&](std::span<const float> block, std::size_t /*first*/) {
    if (kept > most) return;
    kept += table.collect(block.data(), block.size(), {floor, kInfinite}, copies->values.data() + kept,
                          copies->positions.data() + kept);
    copies->ends.push_back(kept);
  });
  if (kept > most) return std::nullopt;
  Candidates found({copies->values.data(), kept});
  found.floor_ = floor;
  found.copies_ = std::move(copies);
  return found;
}

std::size_t Candidates::blocks() const {
  if (copies_ != nullptr) return copies_->ends.size();
  return (values_.size() + kMagnitudeBlock - 1) / kMagnitudeBlock;
}

Candidates::Block Candidates::block(std::size_t number) const {
  const std::size_t first = number * kMagnitudeBlock;
  if (copies_ == nullptr)
    return {values_.subspan(first, std::min(kMagnitudeBlock, values_.size() - first)), nullptr, first};
  const std::size_t begin = number == 0 ? 0 : copies_->ends[number - 1];
  return {values_.subspan(begin, copies_->ends[number] - begin), copies_->positions.data() + begin, first};
}

Candidates likely_candidates(const Table& table, std::span<const float> values, std::size_t k) {
  Candidates all(values);
  if (values.size() < kFewValues) return all;
  std::vector<Magnitude> sample = sample_of(values);
  const double share = static_cast<double>(k) / static_cast<double>(values.size());
  const std::size_t rank = rank_in_sample(share * static_cast<double>(sample.size()));
  const std::size_t most = values.size() / kLeastRest * (kLeastRest - 1);
  const std::size_t expected = values.size() / sample.size() * rank;
  if (expected >= most) return all;
  const auto place = sample.begin() + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(sample.begin(), place, sample.end(), std::greater<>());
  if (*place == 0) return all;
  std::optional<Candidates> found =
      Candidates::collect(table, values, *place, std::min(most, expected + expected / 2));
  return found && found->values().size() > k ? *std::move(found) : all;
}

MagnitudeStatistics statistics_of(const Table& table, std::span<const float> values) {
  double sum = 0;
  Magnitude most = 0;
  for_each_block(values, [&](std::span<const float> block, std::size_t /*first*/) {
    const MagnitudeSum found = table.magnitude_sum(block.data(), block.size());
    sum += found.sum;
    most = std::max(most, found.most);
  });
  if (most == kInfinite) return finite_statistics(table, values);
  return {sum / static_cast<double>(values.size()), static_cast<double>(number_of(most)), 0};
}

}  // namespace roundelay::kernels
