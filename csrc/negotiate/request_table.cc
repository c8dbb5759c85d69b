#include "negotiate/request_table.h"

#include <algorithm>
#include <utility>

namespace roundelay::negotiate {
namespace {

std::int64_t first_extent(const std::vector<std::int64_t>& shape) {
  return shape.empty() ? 0 : shape.front();
}

}  // namespace

RequestTable::Iterator RequestTable::open(int member, const wire::Request& request, TimePoint now) {
  const Iterator position = requests_.try_emplace(request.name).first;
  ReportedRequest& reported = position->second;
  reported.request = request;
  reported.first_member = member;
  reported.by_member.assign(members_, 0);
  reported.missing = static_cast<int>(members_);
  reported.first_seen = reported.warned = now;
  if (request.operation == Operation::kAllgather)
    reported.extents.assign((1 + request.others.size()) * members_, 0);
  if (request.operation == Operation::kAgreement) reported.values.resize(members_);
  return position;
}

void RequestTable::report(ReportedRequest& reported, const Reporters& who, const wire::Request& request,
                          std::size_t number) {
  reported.request.unnamed = std::max(reported.request.unnamed, request.unnamed);
  for (const int member : who.members) reported.by_member[static_cast<std::size_t>(member)] = 1;
  reported.missing -= static_cast<int>(who.members.size());
  if (request.operation == Operation::kAgreement) {
    for (const int member : who.members) {
      const auto m = static_cast<std::size_t>(member);
      reported.values[m] = values_of(who, member, number, group_.ranks[m]);
    }
  }
  if (request.operation != Operation::kAllgather) return;
  for (const int member : who.members) {
    auto extent = reported.extents.begin() + member;
    *extent = first_extent(request.shape);
    for (const wire::TensorSpec& tensor : request.others)
      *(extent += static_cast<std::ptrdiff_t>(members_)) = first_extent(tensor.shape);
  }
}

ReportedRequest RequestTable::extract(Iterator position) {
  ReportedRequest reported = std::move(position->second);
  requests_.erase(position);
  return reported;
}

}  // namespace roundelay::negotiate
