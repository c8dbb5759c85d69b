// The values on which the ranks agree at the end of a backward, and in step(). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/agreement.h"

namespace roundelay::gradients {

inline constexpr std::size_t kComparedBytes = 8;

// The sizes of an agreement's values, equal on all ranks. They follow from the groups and from what Python
// adds (Policy).
struct RoundShape {
  std::size_t groups = 0;
  std::size_t gradients = 0;             // of all groups
  bool weighted = false;                 // each rank has a weight
  std::vector<AgreementField> policy{};  // Python's fields
};

// One rank's values, or those of all ranks, merged. One byte for each group or gradient, in their order.
struct RoundValues {
  std::string compared = std::string(kComparedBytes, '\0');  // a digest of what has to be equal
  bool final = false;     // the rank is in step() and has no further gradients; merged: all are
  bool busy = false;      // the rank waits for other rounds, too; merged: some rank does
  std::string submitted;  // how often the group was submitted; merged: on the rank that did so most
  std::string kinds;      // GradientGroup::Kind; merged: where the gradient is ready on some rank
  std::string wanted;     // 1: the gradient is wanted, and its group was not submitted; merged: on some rank
  double weight = 0.0;    // the rank's, if there are weights; merged: their sum
  std::string policy;     // the values of Python's fields
};

// The index of `compared` among the fields, and that of the first one of Python's.
inline constexpr std::uint32_t kComparedField = 0;
inline constexpr std::uint32_t kFirstPolicyField = 7;

[[nodiscard]] std::vector<AgreementField> fields_of(const RoundShape& shape);
// Returns values of this shape as bytes.
[[nodiscard]] std::string pack(const RoundShape& shape, const RoundValues& values);
// Takes values of this shape apart.
[[nodiscard]] RoundValues unpack(const RoundShape& shape, std::string_view packed);

}  // namespace roundelay::gradients
