#include "kernels/quantise.h"

#include "kernels/cpu/table.h"

namespace roundelay::kernels {

void quantise(std::byte* to, float* numbers, const float* marks, std::size_t count) {
  best_table().quantise(to, numbers, marks, count);
}

void dequantise(float* numbers, const std::byte* from, std::size_t count) {
  best_table().dequantise(numbers, from, count);
}

}  // namespace roundelay::kernels
