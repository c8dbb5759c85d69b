#include "kernels/quantise.h"

#include "kernels/cpu/table.h"

namespace roundelay::kernels {

void quantise(std::byte* to, float* numbers, std::size_t count) { best_table().quantise(to, numbers, count); }

void dequantise(float* numbers, const std::byte* from, std::size_t count) {
  best_table().dequantise(numbers, from, count);
}

void move_exactly(float* to, float* numbers, std::size_t count) {
  best_table().move_exactly(to, numbers, count);
}

}  // namespace roundelay::kernels
