#include "negotiate/coordinator.h"

#include <algorithm>
#include <utility>

#include "negotiate/validate.h"

namespace roundelay::negotiate {
namespace {

std::size_t bytes_of(const wire::Request& request) {
  std::size_t count = 1;
  for (const std::int64_t extent : request.shape) count *= static_cast<std::size_t>(extent);
  return count * size_of(request.dtype);
}

}  // namespace

Coordinator::Coordinator(LaneId lane, Group group, CoordinatorOptions options)
    : lane_(lane),
      group_(std::move(group)),
      options_(options),
      cache_(options.cache_capacity),
      applied_(static_cast<std::size_t>(group_.size()), 0) {}

Status Coordinator::on_report(int member, const wire::Report& report, TimePoint now) {
  if (closed_) return {};
  applied_[static_cast<std::size_t>(member)] = report.last_order;
  for (const wire::CacheId id : report.cached) {
    if (const wire::Request* request = cache_.find(id)) {
      const wire::Request copy = *request;
      cache_.touch(id);
      ROUNDELAY_RETURN_IF_ERROR(on_request(member, copy, report.last_order, now));
    } else if (!cache_.was_given(id)) {
      return Status::internal("rank " + std::to_string(group_.ranks[static_cast<std::size_t>(member)]) +
                              " reported cache id " + std::to_string(id) + ", which was never given");
    }
    // An evicted id: the member reports in full once it applies the order that evicted it.
  }
  for (const wire::Request& request : report.requests) {
    ROUNDELAY_RETURN_IF_ERROR(on_request(member, request, report.last_order, now));
  }
  flush_ = flush_ || report.flush;
  if (report.leaving && left_by_ < 0) left_by_ = group_.ranks[static_cast<std::size_t>(member)];
  if (!settled_.empty()) forget_settled();
  return {};
}

bool Coordinator::settled_without(const std::string& name, std::uint64_t last_order) const {
  const auto found = settled_.find(name);
  return found != settled_.end() && last_order < found->second;
}

void Coordinator::forget_settled() {
  const std::uint64_t everyone = *std::min_element(applied_.begin(), applied_.end());
  std::erase_if(settled_, [&](const auto& entry) { return entry.second <= everyone; });
}

Status Coordinator::on_request(int member, const wire::Request& request, std::uint64_t last_order,
                               TimePoint now) {
  if (settled_without(request.name, last_order)) return {};
  const int rank = group_.ranks[static_cast<std::size_t>(member)];
  if (!request.error.empty()) {
    table_.erase(request.name);
    fail(request, StatusCode::kMismatch, "rank " + std::to_string(rank) + ": " + request.error);
    return {};
  }
  auto [found, fresh] = table_.try_emplace(request.name);
  Slot& slot = found->second;
  if (fresh) {
    slot.request = request;
    slot.first_member = member;
    slot.reported.assign(static_cast<std::size_t>(group_.size()), false);
    slot.missing = group_.size();
    slot.first_seen = slot.warned = now;
  } else if (slot.reported[static_cast<std::size_t>(member)]) {
    return Status::internal("rank " + std::to_string(rank) + " reported '" + request.name + "' twice");
  } else {
    const int first_rank = group_.ranks[static_cast<std::size_t>(slot.first_member)];
    std::string text = first_rank < rank ? mismatch(slot.request, first_rank, request, rank)
                                         : mismatch(request, rank, slot.request, first_rank);
    if (!text.empty()) {
      table_.erase(found);
      fail(request, StatusCode::kMismatch, std::move(text));
      return {};
    }
  }
  slot.reported[static_cast<std::size_t>(member)] = true;
  if (--slot.missing == 0) {
    Slot complete = std::move(slot);
    table_.erase(found);
    make_ready(std::move(complete), member, now);
  }
  return {};
}

void Coordinator::fail(const wire::Request& request, StatusCode code, std::string text) {
  settled_[request.name] = sequence_ + 1;  // failures never wait: they go out with the very next order
  failures_.push_back({request.name, code, std::move(text)});
}

void Coordinator::make_ready(Slot slot, int last_member, TimePoint now) {
  if (ready_.empty()) oldest_ready_ = now;
  ready_bytes_ += bytes_of(slot.request);
  if (group_.size() > 1) {
    notes_.push_back(
        {slot.request.name, group_.ranks[static_cast<std::size_t>(last_member)], now - slot.first_seen});
  }
  const std::uint64_t fusion_class = fusion_class_of(slot.request);
  ready_.push_back({std::move(slot.request), fusion_class});
}

std::uint64_t Coordinator::fusion_class_of(const wire::Request& r) {
  if (r.operation != Operation::kAllreduce) return fuse::kNoFusion;
  const ClassKey key{
      r.operation,        r.dtype, r.reduce_op, r.prescale.factor, r.prescale.divisor, r.postscale.factor,
      r.postscale.divisor};
  return classes_.try_emplace(key, classes_.size() + 1).first->second;
}

wire::Member Coordinator::member_for(const wire::Request& request, wire::Order& order, Writing& writing) {
  if (!request.cacheable) return {wire::kNoCacheId, request.name};
  if (const wire::CacheId id = cache_.id_of(request); id != wire::kNoCacheId) return {id, {}};
  if (writing.cache_full && !cache_.knows(request.name)) return {wire::kNoCacheId, request.name};
  // An id must live while a rank's report may name it, and while this very order does.
  const auto in_use = [&](const std::string& name) {
    if (writing.names.empty()) {
      for (const Ready& ready : ready_) writing.names.insert(ready.request.name);
    }
    return table_.contains(name) || writing.names.contains(name);
  };
  const wire::CacheId id = cache_.insert(request, in_use, order.evicted);
  writing.cache_full = id == wire::kNoCacheId;
  return {id, request.name};
}

std::optional<wire::Order> Coordinator::take_order(TimePoint now) {
  if (closed_) return std::nullopt;
  abort_stalled(now);
  const bool fire = !ready_.empty() && fuse::fires(ready_bytes_, oldest_ready_, now, flush_, options_.fire);
  flush_ = false;
  if (!fire && failures_.empty() && left_by_ < 0) return std::nullopt;

  wire::Order order;
  order.lane = lane_;
  order.sequence = ++sequence_;
  order.failures = std::exchange(failures_, {});
  order.shut_down_by = left_by_;
  closed_ = left_by_ >= 0;
  if (!fire || closed_) return order;

  Writing writing;
  std::vector<fuse::Candidate> candidates;
  candidates.reserve(ready_.size());
  for (const Ready& ready : ready_) candidates.push_back({bytes_of(ready.request), ready.fusion_class});
  for (const auto& indices : fuse::plan(candidates, options_.plan)) {
    auto& operation = order.operations.emplace_back();
    for (const std::size_t i : indices)
      operation.members.push_back(member_for(ready_[i].request, order, writing));
  }
  classes_.clear();  // they matter within one plan only, and scales may change from step to step
  ready_.clear();
  ready_bytes_ = 0;
  return order;
}

Deadline Coordinator::next_due() const {
  if (closed_) return Deadline::never();
  Deadline due = Deadline::never();
  if (!ready_.empty()) due = Deadline::at(oldest_ready_ + options_.fire.linger);
  for (const auto& [name, slot] : table_) {
    if (options_.stall_warning > Duration{0})
      due = due.sooner(Deadline::at(slot.warned + options_.stall_warning));
    if (options_.stall_abort > Duration{0})
      due = due.sooner(Deadline::at(slot.first_seen + options_.stall_abort));
  }
  return due;
}

std::vector<ReadyNote> Coordinator::take_ready_notes() { return std::exchange(notes_, {}); }

}  // namespace roundelay::negotiate
