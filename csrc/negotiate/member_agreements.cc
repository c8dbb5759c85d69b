#include "negotiate/member_agreements.h"

#include <algorithm>
#include <utility>

namespace roundelay::negotiate {
namespace {

std::string zeros(std::size_t bytes) { return std::string(bytes, '\0'); }

}  // namespace

wire::CacheId ReportedSubmissions::add(const wire::Submission& submission) {
  const auto& [request, values] = submission;
  const wire::CacheId id = cache_.id_of(request);
  if (id == wire::kNoCacheId) {
    contribute(report_.requests.size(), change_between(zeros(values.size()), values));
    report_.requests.push_back(request);
  } else {
    if (request.operation == Operation::kAgreement) changes_[id] = change_between(cache_.base_of(id), values);
    report_.cached.push_back(id);
  }
  return id;
}

void ReportedSubmissions::finish() {
  std::sort(report_.cached.begin(), report_.cached.end());
  for (std::size_t i = 0; i < report_.cached.size() && !changes_.empty(); ++i) {
    auto change = changes_.extract(report_.cached[i]);
    if (change) contribute(report_.requests.size() + i, std::move(change.mapped()));
  }
}

void ReportedSubmissions::contribute(std::size_t request, ByteChange change) {
  if (!change.empty())
    report_.contributions.push_back({static_cast<std::uint32_t>(request), std::move(change)});
}

Status take_result(const wire::FusedOperation& operation, const wire::Request& request, CachedRequests& cache,
                   std::optional<Agreed>& agreed) {
  if (!operation.merged && request.operation != Operation::kAgreement) return {};
  if (!operation.merged || request.operation != Operation::kAgreement || operation.tensors.size() != 1)
    return Status::internal("an order takes '" + request.name + "' for an agreement, or not for one");
  const auto& [change, differences] = *operation.merged;
  const wire::FusedTensor& agreement = operation.tensors.front();
  const bool in_full = !agreement.name.empty();
  if (!in_full) ROUNDELAY_RETURN_IF_ERROR(cache.request_of(agreement.id).status());
  std::string values = in_full ? zeros(bytes_of(request.fields)) : cache.base_of(agreement.id);
  const bool known = std::all_of(differences.begin(), differences.end(), [&](const Difference& difference) {
    return difference.field < request.fields.size();
  });
  if (!known || !fits(change, values.size()))
    return Status::internal("an order has a result for '" + request.name + "' that is not within its fields");
  apply_change(change, values);
  cache.set_base(agreement.id, values);
  agreed = Agreed{std::move(values), differences};
  return {};
}

Status take_skipped_result(const wire::FusedOperation& operation, CachedRequests& cache,
                           std::optional<Agreed>& agreed) {
  if (!operation.merged) return {};
  agreed.emplace();
  if (operation.tensors.empty() || !operation.tensors.front().name.empty()) return {};
  const Result<const wire::Request*> request = cache.request_of(operation.tensors.front().id);
  if (!request.ok()) return request.status();
  return take_result(operation, **request, cache, agreed);
}

}  // namespace roundelay::negotiate
