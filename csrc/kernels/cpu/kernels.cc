// The public kernels: a look-up in a table, then a loop.
#include "kernels/kernels.h"

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

}  // namespace

void reduce(void* accumulator, const void* incoming, std::size_t count, DType dtype, ReduceOp op) {
  const ReduceFunction function = best_table().reduce[index_of(dtype)][index_of(op)];
  assert(function != nullptr);
  function(static_cast<std::byte*>(accumulator), static_cast<const std::byte*>(incoming), count);
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
