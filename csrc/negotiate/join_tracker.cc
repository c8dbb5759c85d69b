#include "negotiate/join_tracker.h"

#include "wire/describe.h"

namespace roundelay::negotiate {

void JoinTracker::end() {
  join_ = nullptr;
  ended_ = true;
}

bool JoinTracker::has_joined(int member) const {
  return join_ != nullptr && join_->by_member[static_cast<std::size_t>(member)] != 0;
}

void JoinTracker::restart_clock(TimePoint now) {
  if (join_ != nullptr) join_->first_seen = join_->warned = now;
}

std::vector<std::int32_t> JoinTracker::absent_from(const ReportedRequest& reported) const {
  std::vector<std::int32_t> absent;
  if (join_ == nullptr || reported.missing == 0) return absent;
  for (int member = 0; member < group_.size(); ++member) {
    if (reported.by_member[static_cast<std::size_t>(member)] == 0 && has_joined(member))
      absent.push_back(member);
  }
  return absent;
}

std::vector<int> JoinTracker::awaited_by(const ReportedRequest& reported) const {
  std::vector<int> ranks;
  for (int member = 0; member < group_.size(); ++member) {
    const auto m = static_cast<std::size_t>(member);
    if (reported.by_member[m] == 0 && !has_joined(member)) ranks.push_back(group_.ranks[m]);
  }
  return ranks;
}

std::string JoinTracker::refusal_of(const ReportedRequest& reported) const {
  const wire::Request& request = reported.request;
  for (const std::int32_t member : absent_from(reported)) {
    const int rank = group_.ranks[static_cast<std::size_t>(member)];
    const std::string who = wire::describe(request) + ": rank " + std::to_string(rank);
    const OperationTraits& traits = traits_of(request.operation);
    if (traits.needs_all) return who + " has joined, and this operation needs every rank";
    if (traits.has_root && request.root == rank) return who + ", its root, has joined";
  }
  return {};
}

std::optional<wire::Request> JoinTracker::take_deferred(int member) {
  const auto join = deferred_.extract(member);
  if (join.empty()) return std::nullopt;
  return std::move(join.mapped());
}

void JoinTracker::drop_deferred(const std::string& name) {
  std::erase_if(deferred_, [&](const auto& join) { return join.second.name == name; });
}

}  // namespace roundelay::negotiate
