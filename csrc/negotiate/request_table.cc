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
  const Iterator position = entries_.try_emplace(request.name).first;
  PendingRequest& entry = position->second;
  entry.request = request;
  entry.first_member = member;
  entry.reported.assign(members_, false);
  entry.missing = static_cast<int>(members_);
  entry.first_seen = entry.warned = now;
  if (request.operation == Operation::kAllgather)
    entry.extents.assign((1 + request.others.size()) * members_, 0);
  if (request.operation == Operation::kAgreement) entry.values.resize(members_);
  return position;
}

void RequestTable::report(PendingRequest& entry, int member, const wire::Request& request,
                          ReportedValues values) {
  entry.request.unnamed = std::max(entry.request.unnamed, request.unnamed);
  entry.reported[static_cast<std::size_t>(member)] = true;
  --entry.missing;
  if (request.operation == Operation::kAgreement)
    entry.values[static_cast<std::size_t>(member)] = std::move(values);
  if (request.operation != Operation::kAllgather) return;
  auto extent = entry.extents.begin() + member;
  *extent = first_extent(request.shape);
  for (const wire::TensorSpec& tensor : request.others)
    *(extent += static_cast<std::ptrdiff_t>(members_)) = first_extent(tensor.shape);
}

PendingRequest RequestTable::take(Iterator position) {
  PendingRequest entry = std::move(position->second);
  entries_.erase(position);
  return entry;
}

}  // namespace roundelay::negotiate
