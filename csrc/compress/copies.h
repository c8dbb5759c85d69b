// Many copies by few calls.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "compress/arithmetic.h"

namespace roundelay::compress {

// Collects copies, and gives them to Arithmetic::copy() in groups, which a GPU does at once. Call add() for
// each copy, then end(). Errors: those of Arithmetic.
class Copies {
 public:
  // `math` outlives it.
  explicit Copies(Arithmetic& math) : math_(math) {}
  Status add(const kernels::GpuCopy& item) {
    if (count_ == items_.size()) ROUNDELAY_RETURN_IF_ERROR(end());
    items_[count_++] = item;
    return {};
  }
  Status end() { return math_.copy(std::span(items_).first(std::exchange(count_, 0))); }

 private:
  Arithmetic& math_;
  std::array<kernels::GpuCopy, 64> items_{};
  std::size_t count_ = 0;
};

}  // namespace roundelay::compress
