#pragma once

#include <algorithm>
#include <random>

#include "base/bytes.h"

namespace roundelay::testing {

inline Bytes random_bytes(std::mt19937& random, std::size_t size) {
  Bytes bytes(size);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random()); });
  return bytes;
}

}  // namespace roundelay::testing
