// The job's secret, as Python passes it.
#pragma once

#include <pybind11/pybind11.h>

#include <cstring>
#include <string_view>

#include "trust/trust.h"

namespace roundelay::bindings {

// Raises ValueError for a secret of another length.
inline trust::Key key_of(const pybind11::bytes& bytes) {
  const std::string_view text = bytes;
  trust::Key key{};
  if (text.size() != key.size()) throw pybind11::value_error("a secret has 32 bytes");
  std::memcpy(key.data(), text.data(), key.size());
  return key;
}

}  // namespace roundelay::bindings
