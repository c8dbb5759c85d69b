#include "kernels/chunks.h"

#include <cassert>
#include <limits>

#include "kernels/chunk_element.h"
#include "kernels/cpu/table.h"
#include "kernels/kernels.h"
#include "kernels/largest.h"

namespace roundelay::kernels {
namespace {

// One thread counts alone.
struct PlainCounter {
  void operator()(std::uint32_t& word) const { ++word; }
};

void move(ResidualFunction function, void* to, void* from, std::size_t count) {
  assert(function != nullptr);
  function(static_cast<std::byte*>(to), static_cast<std::byte*>(from), count);
}

}  // namespace

void keep(void* residual, void* values, std::size_t count, DType dtype) {
  move(best_table().keep[index_of(dtype)], residual, values, count);
}

void give_back(void* values, void* residual, std::size_t count, DType dtype) {
  move(best_table().give_back[index_of(dtype)], values, residual, count);
}

void take_rounded(void* sent, void* residual, std::size_t count, DType dtype) {
  move(best_table().take_rounded[index_of(dtype)], sent, residual, count);
}

float norm(const void* values, std::size_t count, DType dtype) {
  const NormFunction function = best_table().norm[index_of(dtype)];
  assert(function != nullptr);
  return function(static_cast<const std::byte*>(values), count);
}

ResidualState chunk_of(const ResidualState& kept, Chunking of, std::size_t index, DType dtype) {
  const std::size_t first = index * of.chunk * size_of(residual_type(dtype));
  return {kept.residual + first, kept.momentum == nullptr ? nullptr : kept.momentum + first, kept.how};
}

float accumulate(const ResidualState& kept, void* values, std::size_t count, DType dtype) {
  const AccumulateFunction function = best_table().accumulate[index_of(dtype)];
  assert(function != nullptr);
  return function(kept, static_cast<std::byte*>(values), count);
}

void mark_overflow(void* value, DType dtype, const float* norms, std::size_t count) {
  bool finite = true;
  for (std::size_t i = 0; i < count; ++i) finite = finite && is_finite(norms[i]);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  if (!finite) cast(value, dtype, &nan, DType::kFloat32, 1);
}

void select_largest(std::uint32_t* indices, std::size_t keep, const float* norms, std::size_t count) {
  assert(keep <= count && count < std::uint64_t{1} << 32);
  LargestShared<1> shared;
  const Largest work{indices, static_cast<std::uint32_t>(keep), norms, static_cast<std::uint32_t>(count)};
  using Steps = LargestSteps<1, PlainCounter>;
  for (int step = 0; step < Steps::kSteps; ++step) Steps(work, shared, 0).run(step);
}

}  // namespace roundelay::kernels
