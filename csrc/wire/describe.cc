#include "wire/describe.h"

namespace roundelay::wire {

std::string describe(const Request& request) {
  if (request.operation == Operation::kProcessSet) {
    if (request.root >= 0) return "remove_process_set()";
    return request.ranks.empty() ? "the end of adding process sets" : "add_process_set()";
  }
  std::string text(name_of(request.operation));
  const bool named = traits_of(request.operation).has_tensors || request.operation == Operation::kAgreement;
  if (!named) return text + "()";
  if (!request.name.empty()) text.append(" of '").append(request.name).append("'");
  if (!request.others.empty()) text += " (" + std::to_string(1 + request.others.size()) + " tensors)";
  if (!request.technique.empty()) text += " by " + describe_technique(request);
  return text;
}

std::string describe_technique(const Request& request) {
  return request.technique.empty() ? "dense" : "technique '" + request.technique + "'";
}

std::string describe_ranks(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text;
}

}  // namespace roundelay::wire
