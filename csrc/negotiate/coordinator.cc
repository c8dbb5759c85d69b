#include "negotiate/coordinator.h"

#include <algorithm>
#include <utility>

#include "fuse/layout.h"
#include "negotiate/validate.h"
#include "wire/describe.h"

namespace roundelay::negotiate {
namespace {

std::size_t bytes_of(DType dtype, const Shape& shape) {
  std::size_t count = 1;
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  return count * size_of(dtype);
}

// What it takes in a fusion buffer, but for the padding after a single tensor.
std::size_t bytes_of(const wire::Request& request) {
  std::size_t sum = bytes_of(request.dtype, request.shape);
  if (request.others.empty()) return sum;
  sum += fuse::padding_after(sum);
  for (const wire::TensorSpec& tensor : request.others) {
    const std::size_t bytes = bytes_of(tensor.dtype, tensor.shape);
    sum += bytes + fuse::padding_after(bytes);
  }
  return sum;
}

std::int64_t first_extent(const Shape& shape) { return shape.empty() ? 0 : shape.front(); }

}  // namespace

Coordinator::Coordinator(LaneId lane, Group group, CoordinatorOptions options)
    : lane_(lane),
      group_(std::move(group)),
      options_(options),
      cache_(options.cache_capacity),
      applied_(static_cast<std::size_t>(group_.size()), 0),
      unheard_until_(applied_.size(), 0),
      removing_(applied_.size(), false) {}

Status Coordinator::on_report(int member, const wire::Report& report, TimePoint now) {
  if (closed_) return {};
  const auto m = static_cast<std::size_t>(member);
  applied_[m] = report.last_order;
  // Written before the lock, which gives all that it says back to its writer.
  if (report.last_order < locked_by_) return {};
  if (keeper_.locked()) return on_report_under_lock(member, report, now);
  if (report.frozen) {
    return Status::internal("rank " + std::to_string(rank_of(member)) + " has frozen, but there is no lock");
  }
  for (const wire::CacheId id : report.cached) {
    if (const wire::Request* request = cache_.find(id)) {
      cache_.touch(id);
      ROUNDELAY_RETURN_IF_ERROR(on_request(member, *request, now));
    } else if (!cache_.was_given(id)) {
      return Status::internal("rank " + std::to_string(rank_of(member)) + " reported cache id " +
                              std::to_string(id) + ", which was never given");
    } else if (const auto evicted = evicted_by_.find(id); evicted != evicted_by_.end()) {
      unheard_until_[m] = std::max(unheard_until_[m], evicted->second);
    }
  }
  for (const wire::Request& request : report.requests) {
    ROUNDELAY_RETURN_IF_ERROR(on_request(member, request, now));
  }
  if (!early_joins_.empty()) ROUNDELAY_RETURN_IF_ERROR(take_early_join(member, now));
  flush_ = flush_ || report.flush;
  if (report.leaving && left_by_ < 0) left_by_ = rank_of(member);
  if (report.removing) removing_[m] = true;
  if (!settled_.empty() || !evicted_by_.empty()) forget_what_all_applied();
  return {};
}

bool Coordinator::heard_all(int member) const {
  const auto m = static_cast<std::size_t>(member);
  return applied_[m] >= unheard_until_[m];
}

bool Coordinator::settled_without(const std::string& name, int member) const {
  const auto found = settled_.find(name);
  return found != settled_.end() && applied_[static_cast<std::size_t>(member)] < found->second;
}

void Coordinator::forget_what_all_applied() {
  const std::uint64_t everyone = *std::min_element(applied_.begin(), applied_.end());
  const auto applied = [&](const auto& entry) { return entry.second <= everyone; };
  std::erase_if(settled_, applied);
  std::erase_if(evicted_by_, applied);
}

Status Coordinator::on_request(int member, const wire::Request& request, TimePoint now) {
  if (settled_without(request.name, member)) return {};
  const int rank = rank_of(member);
  auto found = table_.find(request.name);
  if (!request.error.empty()) {
    if (found != table_.end()) take_slot(found);
    fail(request, "rank " + std::to_string(rank) + ": " + request.error, now);
    return {};
  }
  if (request.operation == Operation::kJoin && !heard_all(member)) {
    early_joins_.emplace(member, request);
    return {};
  }
  if (has_joined(member))
    return Status::internal("rank " + std::to_string(rank) + " reported '" + request.name +
                            "' after its join");
  if (found == table_.end()) {
    found = open_slot(member, request, now);
  } else if (const Slot& slot = found->second; slot.reported[static_cast<std::size_t>(member)]) {
    return Status::internal("rank " + std::to_string(rank) + " reported '" + request.name + "' twice");
  } else {
    const int first_rank = rank_of(slot.first_member);
    std::string text = first_rank < rank ? mismatch(slot.request, first_rank, request, rank)
                                         : mismatch(request, rank, slot.request, first_rank);
    if (!text.empty()) {
      take_slot(found);
      fail(request, std::move(text), now, StatusCode::kMismatch);
      return {};
    }
  }
  Slot& slot = found->second;
  slot.request.unnamed = std::max(slot.request.unnamed, request.unnamed);
  slot.reported[static_cast<std::size_t>(member)] = true;
  --slot.missing;
  if (request.operation == Operation::kAllgather) {
    auto extent = slot.extents.begin() + member;
    *extent = first_extent(request.shape);
    for (const wire::TensorSpec& tensor : request.others)
      *(extent += group_.size()) = first_extent(tensor.shape);
  }
  if (request.operation == Operation::kJoin) {
    on_joined(found, member, now);
  } else {
    restart_join_clock(now);
    settle_if_complete(found, member, now);
  }
  return {};
}

Coordinator::Slots::iterator Coordinator::open_slot(int member, const wire::Request& request, TimePoint now) {
  const auto found = table_.try_emplace(request.name).first;
  Slot& slot = found->second;
  slot.request = request;
  slot.first_member = member;
  slot.reported.assign(static_cast<std::size_t>(group_.size()), false);
  slot.missing = group_.size();
  slot.first_seen = slot.warned = now;
  if (request.operation == Operation::kAllgather)
    slot.extents.assign((1 + request.others.size()) * slot.reported.size(), 0);
  stall_due_ = table_.size() == 1 ? stall_due(slot) : std::min(stall_due_, stall_due(slot));
  return found;
}

Coordinator::Slot Coordinator::take_slot(Slots::iterator found) {
  if (&found->second == join_) {
    join_ = nullptr;
    join_over_ = true;
  }
  Slot slot = std::move(found->second);
  table_.erase(found);
  return slot;
}

void Coordinator::settle_if_complete(Slots::iterator found, int last_member, TimePoint now) {
  const Slot& slot = found->second;
  if (slot.missing > 0) {
    if (join_ == nullptr) return;
    if (std::string why = refusal_of(slot); !why.empty()) {
      fail(take_slot(found).request, std::move(why), now);
      return;
    }
    if (std::ssize(absent_from(slot)) < slot.missing) return;
  }
  make_ready(take_slot(found), last_member, now);
}

void Coordinator::fail(const wire::Request& request, std::string text, TimePoint now, StatusCode code) {
  settled_[request.name] = sequence_ + 1;  // failures never wait: they go out with the very next order
  count_unnamed(request);
  std::vector<std::uint64_t> counters;
  if (request.operation == Operation::kJoin) counters.assign(unnamed_.begin(), unnamed_.end());
  failures_.push_back({request.name, code, std::move(text), std::move(counters)});
  std::erase_if(early_joins_, [&](const auto& early) { return early.second.name == request.name; });
  restart_join_clock(now);
}

void Coordinator::count_unnamed(const wire::Request& request) {
  std::uint64_t& count = unnamed_[static_cast<std::size_t>(request.operation)];
  count = std::max(count, request.unnamed);
}

void Coordinator::make_ready(Slot slot, int last_member, TimePoint now) {
  if (ready_.empty()) oldest_ready_ = now;
  count_unnamed(slot.request);
  const std::size_t bytes = bytes_of(slot.request);
  ready_bytes_ += bytes;
  if (group_.size() > 1) notes_.push_back({slot.request.name, rank_of(last_member), now - slot.first_seen});
  std::vector<std::int32_t> absent = absent_from(slot);
  const std::uint64_t fusion_class = fusion_class_of(slot.request, absent);
  ready_.push_back(
      {std::move(slot.request), bytes, fusion_class, std::move(slot.extents), std::move(absent)});
}

std::uint64_t Coordinator::fusion_class_of(const wire::Request& r, const std::vector<std::int32_t>& absent) {
  const bool one_dtype = std::all_of(r.others.begin(), r.others.end(),
                                     [&](const wire::TensorSpec& tensor) { return tensor.dtype == r.dtype; });
  // Adasum is not linear: fused tensors would share their coefficients.
  if (r.operation != Operation::kAllreduce || r.reduce_op == ReduceOp::kAdasum || !one_dtype)
    return fuse::kNoFusion;
  const ClassKey key{r.dtype,
                     r.device,
                     r.reduce_op,
                     r.prescale.factor,
                     r.prescale.divisor,
                     r.postscale.factor,
                     r.postscale.divisor,
                     absent};
  return classes_.try_emplace(key, classes_.size() + 1).first->second;
}

wire::FusedTensor Coordinator::tensor_for(const Ready& ready, wire::Order& order, Writing& writing) {
  const wire::Request& request = ready.request;
  if (!request.cacheable) return {wire::kNoCacheId, request.name};
  if (const wire::CacheId id = cache_.id_of(request); id != wire::kNoCacheId) return {id, {}};
  // An absent member does not know the request that an id would stand for.
  if (!ready.absent.empty() || (writing.cache_full && !cache_.knows(request.name)))
    return {wire::kNoCacheId, request.name};
  // An id must live while a rank's report may name it, and while this very order does.
  const auto in_use = [&](const std::string& name) {
    if (writing.names.empty()) {
      for (const Ready& other : ready_) writing.names.insert(other.request.name);
    }
    return table_.contains(name) || writing.names.contains(name);
  };
  const wire::CacheId id = cache_.insert(request, in_use, order.evicted);
  writing.cache_full = id == wire::kNoCacheId;
  return {id, request.name};
}

void Coordinator::take_tickets(bool yes) {
  if (yes && !takes_tickets_) finder_.interrupted();  // it may have seen some on a GPU
  takes_tickets_ = yes;
}

std::optional<wire::Order> Coordinator::take_order(TimePoint now) {
  if (closed_) return std::nullopt;
  if (keeper_.locked()) return take_order_under_lock();
  abort_stalled(now);
  const bool left = left_by_ >= 0;
  const bool removed = !left && all_remove();
  if (removed) fail_incomplete(now);
  // Nothing that is ready may stay behind: it may be without members that are back from then on.
  const bool last = std::exchange(join_over_, false) || removed;
  const bool fire = !left && !ready_.empty() &&
                    (last || fuse::fires(ready_bytes_, oldest_ready_, now, flush_, options_.fire));
  flush_ = false;
  if (!fire && failures_.empty() && !left && !last) return std::nullopt;

  wire::Order order;
  order.lane = lane_;
  order.sequence = ++sequence_;
  order.failures = std::exchange(failures_, {});
  if (fire) write_operations(order);
  if (!left) order.joined = std::exchange(joined_, std::nullopt);
  order.shut_down_by = left_by_;
  order.removed = removed;
  closed_ = left || removed;
  if (options_.schedule_lock) lock_if_periodic(order);
  return order;
}

void Coordinator::write_operations(wire::Order& order) {
  Writing writing;
  std::vector<fuse::Candidate> candidates;
  candidates.reserve(ready_.size());
  for (const Ready& ready : ready_) candidates.push_back({ready.bytes, ready.fusion_class});
  for (const auto& indices : fuse::plan(candidates, options_.plan)) {
    auto& operation = order.operations.emplace_back();
    for (const std::size_t i : indices) operation.tensors.push_back(tensor_for(ready_[i], order, writing));
    operation.extents = std::move(ready_[indices.front()].extents);
    operation.absent = std::move(ready_[indices.front()].absent);
    if (!takes_tickets_ || ready_[indices.front()].request.device != DeviceType::kGpu) continue;
    if (!order.tickets) order.tickets.emplace();
    order.tickets->operations.push_back(static_cast<std::int32_t>(order.operations.size() - 1));
  }
  for (const wire::CacheId id : order.evicted) evicted_by_.emplace(id, order.sequence);
  classes_.clear();  // they matter within one plan only, and scales may change from step to step
  ready_.clear();
  ready_bytes_ = 0;
}

bool Coordinator::all_remove() const {
  for (int member = 0; member < group_.size(); ++member) {
    if (!removing_[static_cast<std::size_t>(member)] || !heard_all(member)) return false;
  }
  return true;
}

void Coordinator::fail_incomplete(TimePoint now) {
  std::vector<std::string> names;
  for (const auto& [name, slot] : table_) names.push_back(name);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const auto found = table_.find(name);
    const std::string missing = members_where(found->second, false);
    const Slot slot = take_slot(found);
    std::string text = wire::describe(slot.request);
    text.append(" was never submitted by ").append(missing);
    text.append(", and process set ").append(std::to_string(lane_.process_set)).append(" is being removed");
    fail(slot.request, std::move(text), now);
  }
}

Deadline Coordinator::next_due() const {
  if (closed_) return Deadline::never();
  Deadline due = Deadline::never();
  if (!ready_.empty()) due = Deadline::at(oldest_ready_ + options_.fire.linger);
  if (!table_.empty()) due = due.sooner(Deadline::at(stall_due_));
  if (!keeper_.silent().empty()) due = due.sooner(silence_due());
  return due;
}

std::vector<ReadyNote> Coordinator::take_ready_notes() { return std::exchange(notes_, {}); }

}  // namespace roundelay::negotiate
