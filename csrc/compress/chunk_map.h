// Finds the parts of a bucket that go densely: each rank sends all their elements. It also finds the chunks
// that have other elements. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/technique.h"

namespace roundelay::compress {

// A view of a bucket's parameters, of which those with the numbers `dense` (ascending) go densely. A chunk is
// lossy if it has elements of another parameter.
class ChunkMap {
 public:
  // The spans outlive it. Without parameters, all `count` elements belong to one. `chunk`: the elements of a
  // chunk.
  ChunkMap(std::size_t count, std::span<const Slice> parameters, std::size_t chunk,
           std::span<const std::uint32_t> dense)
      : whole_{0, count},
        parameters_(parameters.empty() ? std::span(&whole_, 1) : parameters),
        dense_(dense),
        chunk_(chunk) {}
  ChunkMap(const ChunkMap&) = delete;
  ChunkMap& operator=(const ChunkMap&) = delete;

  // Calls a function with each slice that goes densely, in order.
  template <typename Visit>
  void each_dense(Visit visit) const {
    for_each([&](const Slice& slice, bool dense) {
      if (dense) visit(slice);
    });
  }
  // Calls a function for each row of adjacent lossy chunks, in order: with the index of its first chunk, and
  // its length.
  template <typename Visit>
  void each_row(Visit visit) const {
    std::size_t first = 0, end = 0;
    for_each([&](const Slice& slice, bool dense) {
      if (dense || slice.count == 0) return;
      const std::size_t begin = slice.first / chunk_;
      if (begin > end && end > first) visit(first, end - first);
      if (begin > end || end == first) first = begin;
      end = (slice.first + slice.count - 1) / chunk_ + 1;
    });
    if (end > first) visit(first, end - first);
  }
  [[nodiscard]] std::size_t dense_elements() const {
    std::size_t sum = 0;
    each_dense([&](const Slice& slice) { sum += slice.count; });
    return sum;
  }
  [[nodiscard]] std::size_t lossy_chunks() const {
    std::size_t sum = 0;
    each_row([&](std::size_t, std::size_t chunks) { sum += chunks; });
    return sum;
  }
  // Returns the index of an element that a user sees: the first one that is no padding; 0: there is none.
  [[nodiscard]] std::size_t first_element() const {
    for (const Slice& slice : parameters_) {
      if (slice.count > 0) return slice.first;
    }
    return 0;
  }

 private:
  template <typename Visit>
  void for_each(Visit visit) const {
    std::size_t next = 0;  // an index in dense_
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const bool dense = next < dense_.size() && dense_[next] == i;
      if (dense) ++next;
      visit(parameters_[i], dense);
    }
  }

  const Slice whole_;
  const std::span<const Slice> parameters_;
  const std::span<const std::uint32_t> dense_;
  const std::size_t chunk_;
};

}  // namespace roundelay::compress
