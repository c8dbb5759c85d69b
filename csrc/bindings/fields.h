// The fields of an agreement (base/agreement.h), as Python gives and gets them.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/agreement.h"

namespace roundelay::bindings {

namespace py = pybind11;

using FieldValues = std::vector<std::pair<Merge, py::bytes>>;

// Returns the fields, and their values one after the other.
inline std::pair<std::vector<AgreementField>, std::string> packed_fields(const FieldValues& values) {
  std::vector<AgreementField> fields;
  std::string packed;
  for (const auto& [merge, value] : values) {
    const std::string bytes = value;
    fields.push_back({merge, static_cast<std::uint32_t>(bytes.size())});
    packed += bytes;
  }
  return {std::move(fields), std::move(packed)};
}

using Side = std::pair<int, py::bytes>;  // a rank and its value

// Returns the index of each field that differs, and two ranks that differ.
inline std::vector<std::tuple<std::uint32_t, Side, Side>> python_differences(
    const std::vector<Difference>& differences) {
  std::vector<std::tuple<std::uint32_t, Side, Side>> found;
  for (const Difference& one : differences)
    found.emplace_back(one.field, Side(one.rank, one.value), Side(one.other_rank, one.other_value));
  return found;
}

}  // namespace roundelay::bindings
