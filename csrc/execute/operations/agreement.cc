#include <algorithm>

#include "execute/operations/operations.h"

namespace roundelay::execute {

std::string wrong_with_agreement(const submit::Entry& entry, const Group& group) {
  const wire::Request& request = entry.request;
  if (request.fields.size() > kMostAgreementFields) {
    return "has " + std::to_string(request.fields.size()) + " fields; " +
           std::to_string(kMostAgreementFields) + " are possible";
  }
  const std::size_t bytes = bytes_of(request.fields);
  if (bytes > kMostAgreementBytes) {
    return "has " + std::to_string(bytes) + " bytes; " + std::to_string(kMostAgreementBytes) +
           " are possible";
  }
  if (entry.values.size() != bytes) {
    return "has " + std::to_string(entry.values.size()) + " bytes for fields of " + std::to_string(bytes);
  }
  if (entry.results == nullptr) return "has no place for its result";
  const bool needs_root =
      std::any_of(request.fields.begin(), request.fields.end(),
                  [](const AgreementField& field) { return field.merge == Merge::kRoot; });
  const bool has_root = std::find(group.ranks.begin(), group.ranks.end(), request.root) != group.ranks.end();
  if (needs_root && !has_root)
    return "has the root " + std::to_string(request.root) + ", which is not in the process set";
  return {};
}

}  // namespace roundelay::execute
