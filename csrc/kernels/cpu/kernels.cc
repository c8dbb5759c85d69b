// The public kernels. Each looks up a function in the table and calls it.
#include "kernels/kernels.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/cpu/table.h"

namespace roundelay::kernels {
namespace {

CastFunction find_cast(DType to, DType from) {
  const Table& best = best_table();
  if (to == DType::kFloat32 && from == DType::kFloat16) return best.half_to_float;
  if (to == DType::kFloat16 && from == DType::kFloat32) return best.float_to_half;
  if (to == DType::kFloat32 && from == DType::kBFloat16) return best.bfloat_to_float;
  if (to == DType::kBFloat16 && from == DType::kFloat32) return best.float_to_bfloat;
  return portable_casts()[index_of(to)][index_of(from)];
}

void copy(void* destination, const void* source, std::size_t bytes) {
  if (destination != source && bytes != 0) std::memcpy(destination, source, bytes);
}

// Reduces block by block in a buffer in the first-level cache, because `destination` may be one of the parts.
void reduce_in_blocks(std::byte* destination, std::span<const void* const> parts, std::size_t count,
                      DType dtype, ReduceOp op, Scale prescale, Scale scale) {
  constexpr std::size_t kBlockBytes = 4 << 10;
  alignas(64) std::byte sum[kBlockBytes];
  alignas(64) std::byte scaled[kBlockBytes];
  const std::size_t element = size_of(dtype);
  const std::size_t block = kBlockBytes / element;
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t length = std::min(block, count - begin);
    const std::size_t offset = begin * element;
    scale_copy(sum, static_cast<const std::byte*>(parts.front()) + offset, length, dtype, prescale);
    for (const void* part : parts.subspan(1)) {
      const std::byte* source = static_cast<const std::byte*>(part) + offset;
      if (!prescale.identity()) {
        scale_copy(scaled, source, length, dtype, prescale);
        source = scaled;
      }
      reduce(sum, source, length, dtype, op);
    }
    scale_copy(destination + offset, sum, length, dtype, scale);
  }
}

}  // namespace

void reduce(void* accumulator, const void* incoming, std::size_t count, DType dtype, ReduceOp op) {
  const ReduceFunction function = best_table().reduce[index_of(dtype)][index_of(op)];
  assert(function != nullptr);
  function(static_cast<std::byte*>(accumulator), static_cast<const std::byte*>(incoming), count);
}

void reduce_parts(void* destination, std::span<const void* const> parts, std::size_t count, DType dtype,
                  ReduceOp op, Scale prescale, Scale scale) {
  assert(!parts.empty());
  auto* const to = static_cast<std::byte*>(destination);
  const SumPartsFunction sum_parts = best_table().sum_parts[index_of(dtype)];
  // These need no wider sum: integers wrap around to the same bits in any width, and one addition rounds once
  // anyway.
  const bool any_width = scale.divisor == 1 && (!is_floating(dtype) || parts.size() == 2);
  const bool scaled = !prescale.identity() || !scale.identity();
  if (!scaled && parts.size() == 2 && (destination == parts[0] || destination == parts[1])) {
    return reduce(destination, destination == parts[0] ? parts[1] : parts[0], count, dtype, op);
  }
  if (op == ReduceOp::kSum && sum_parts != nullptr && !any_width) {
    sum_parts(to, parts, count, prescale, scale);
  } else {
    reduce_in_blocks(to, parts, count, dtype, op, prescale, scale);
  }
}

Dots dots(const void* a, const void* b, std::size_t count, DType dtype) {
  const DotsFunction function = best_table().dots[index_of(dtype)];
  assert(function != nullptr);
  return function(static_cast<const std::byte*>(a), static_cast<const std::byte*>(b), count);
}

void combine(void* a, double factor_a, const void* b, double factor_b, std::size_t count, DType dtype) {
  const CombineFunction function = best_table().combine[index_of(dtype)];
  assert(function != nullptr);
  function(static_cast<std::byte*>(a), factor_a, static_cast<const std::byte*>(b), factor_b, count);
}

void scale_copy(void* destination, const void* source, std::size_t count, DType dtype, Scale scale) {
  if (scale.identity()) return copy(destination, source, count * size_of(dtype));
  const ScaleFunction function = best_table().scale[index_of(dtype)];
  function(static_cast<std::byte*>(destination), static_cast<const std::byte*>(source), count, scale);
}

void cast(void* destination, DType to, const void* source, DType from, std::size_t count) {
  if (to == from) return copy(destination, source, count * size_of(to));
  find_cast(to, from)(static_cast<std::byte*>(destination), static_cast<const std::byte*>(source), count);
}

}  // namespace roundelay::kernels
