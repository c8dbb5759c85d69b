// Finds the values that may be among the k largest magnitudes. A sample gives a floor that somewhat more than
// k magnitudes reach. Then one read of all values collects those. All later work is done on them alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/bisection.h"
#include "kernels/cpu/table.h"
#include "kernels/magnitude.h"

namespace roundelay::kernels {

// Memory that is not set to zero.
template <typename T>
class Scratch {
 public:
  Scratch() = default;
  explicit Scratch(std::size_t count) : memory_(std::make_unique_for_overwrite<T[]>(count)) {}
  [[nodiscard]] T* data() const { return memory_.get(); }

 private:
  std::unique_ptr<T[]> memory_{};
};

class Candidates {
 public:
  // The part of the candidates that comes from one block of kMagnitudeBlock values.
  struct Block {
    std::span<const float> values;
    const std::uint32_t* positions;  // the values' places in the block; null: all its values are candidates
    std::size_t first;               // the index of the block's first value
  };

  // Makes all values candidates, without a copy.
  explicit Candidates(std::span<const float> values);
  // Collects the values whose magnitudes reach the floor. Returns nothing if more than `most` do.
  static std::optional<Candidates> collect(const Table& table, std::span<const float> values, Magnitude floor,
                                           std::size_t most);

  [[nodiscard]] std::span<const float> values() const { return values_; }
  [[nodiscard]] Magnitude floor() const { return floor_; }
  [[nodiscard]] std::size_t blocks() const;
  [[nodiscard]] Block block(std::size_t number) const;

 private:
  struct Copies {
    explicit Copies(std::size_t most) : values(most), positions(most) {}
    Scratch<float> values;
    Scratch<std::uint32_t> positions;
    std::vector<std::size_t> ends{};  // the end of each block's candidates
  };

  std::span<const float> values_;
  Magnitude floor_ = 0;
  std::shared_ptr<const Copies> copies_;  // null: all values
};

// Returns candidates, more than k of them; k is less than the number of values.
Candidates likely_candidates(const Table& table, std::span<const float> values, std::size_t k);

// Returns the mean and the maximum of all values.
MagnitudeStatistics statistics_of(const Table& table, std::span<const float> values);

}  // namespace roundelay::kernels
