// top_k() of kernels/top_k.h with the kernels of one instruction set.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/table.h"
#include "kernels/top_k.h"

namespace roundelay::kernels {

void top_k(const Table& table, std::span<const float> values, const TopKRule& rule, std::span<float> chosen,
           std::span<std::int64_t> indices);

}  // namespace roundelay::kernels
