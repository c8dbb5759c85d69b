#include "gradients/agreement_round.h"

#include <cstring>
#include <utility>

namespace roundelay::gradients {

std::vector<AgreementField> fields_of(const RoundShape& shape) {
  const auto groups = static_cast<std::uint32_t>(shape.groups);
  const auto gradients = static_cast<std::uint32_t>(shape.gradients);
  const auto weight = static_cast<std::uint32_t>(shape.weighted ? sizeof(double) : 0);
  std::vector<AgreementField> fields = {
      {Merge::kEqual, static_cast<std::uint32_t>(kComparedBytes)},
      {Merge::kAnd, 1},          // final
      {Merge::kOr, 1},           // busy
      {Merge::kMax, groups},     // submitted
      {Merge::kMax, gradients},  // kinds
      {Merge::kOr, gradients},   // wanted
      {Merge::kSum, weight},
  };
  fields.insert(fields.end(), shape.policy.begin(), shape.policy.end());
  return fields;
}

std::string pack(const RoundShape& shape, const RoundValues& values) {
  std::string packed = values.compared;
  packed += static_cast<char>(values.final);
  packed += static_cast<char>(values.busy);
  packed += values.submitted + values.kinds + values.wanted;
  if (shape.weighted) packed.append(reinterpret_cast<const char*>(&values.weight), sizeof values.weight);
  return packed + values.policy;
}

RoundValues unpack(const RoundShape& shape, std::string_view packed) {
  const auto next_bytes = [&](std::size_t bytes) {
    const std::string_view part = packed.substr(0, bytes);
    packed.remove_prefix(part.size());
    return std::string(part);
  };
  RoundValues values;
  values.compared = next_bytes(kComparedBytes);
  values.final = next_bytes(1) != std::string(1, '\0');
  values.busy = next_bytes(1) != std::string(1, '\0');
  values.submitted = next_bytes(shape.groups);
  values.kinds = next_bytes(shape.gradients);
  values.wanted = next_bytes(shape.gradients);
  if (shape.weighted) std::memcpy(&values.weight, next_bytes(sizeof(double)).data(), sizeof(double));
  values.policy = packed;
  return values;
}

}  // namespace roundelay::gradients
