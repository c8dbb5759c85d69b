#include "negotiate/ready_queue.h"

#include <algorithm>
#include <utility>

#include "negotiate/fusion_layout.h"

namespace roundelay::negotiate {
namespace {

std::size_t bytes_of(DType dtype, const std::vector<std::int64_t>& shape) {
  std::size_t count = 1;
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  return count * size_of(dtype);
}

// The bytes of a request in a fusion buffer, without the padding after a single tensor.
std::size_t bytes_of(const wire::Request& request) {
  std::size_t sum = bytes_of(request.dtype, request.shape);
  if (request.others.empty()) return sum;
  sum += padding_after(sum);
  for (const wire::TensorSpec& tensor : request.others) {
    const std::size_t bytes = bytes_of(tensor.dtype, tensor.shape);
    sum += bytes + padding_after(bytes);
  }
  return sum;
}

}  // namespace

void ReadyQueue::push(ReportedRequest reported, std::vector<std::int32_t> absent, TimePoint now) {
  if (ready_.empty()) oldest_ = now;
  const std::size_t bytes = bytes_of(reported.request);
  bytes_ += bytes;
  const std::uint64_t fusion_class = classes_.class_of(reported.request, absent);
  ready_.push_back({std::move(reported.request), bytes, fusion_class, std::move(reported.extents),
                    std::move(absent), std::move(reported.values)});
}

bool ReadyQueue::fires(bool end_linger, TimePoint now) const {
  return !ready_.empty() && negotiate::fires(bytes_, oldest_, now, end_linger, fire_);
}

Deadline ReadyQueue::next_due() const {
  return ready_.empty() ? Deadline::never() : Deadline::at(next_fire(bytes_, oldest_, false, fire_));
}

std::uint64_t ReadyQueue::Classes::class_of(const wire::Request& r, const std::vector<std::int32_t>& absent) {
  const bool one_dtype = std::all_of(r.others.begin(), r.others.end(),
                                     [&](const wire::TensorSpec& tensor) { return tensor.dtype == r.dtype; });
  // Adasum is not linear: fused tensors would share their coefficients. A technique treats one bucket.
  if (r.operation != Operation::kAllreduce || r.reduce_op == ReduceOp::kAdasum || !r.technique.empty() ||
      !one_dtype)
    return kNoFusion;
  const Key key{r.dtype,
                r.device,
                r.reduce_op,
                r.prescale.factor,
                r.prescale.divisor,
                r.postscale.factor,
                r.postscale.divisor,
                absent};
  return numbers_.try_emplace(key, numbers_.size() + 1).first->second;
}

// The name of a ready request in the order: its id, a new id with the name, or the name alone.
wire::FusedTensor ReadyQueue::tensor_for(const ReadyRequest& ready, Writing& writing) const {
  const wire::Request& request = ready.request;
  if (!request.cacheable) return {wire::kNoCacheId, request.name};
  ResponseCache& cache = writing.cache;
  if (const wire::CacheId id = cache.id_of(request); id != wire::kNoCacheId) return {id, {}};
  // An absent member does not know the request that an id would stand for.
  if (!ready.absent.empty() || (writing.cache_full && !cache.knows(request.name)))
    return {wire::kNoCacheId, request.name};
  // An id must live while a rank's report may name it, and while this very order does.
  const auto in_use = [&](const std::string& name) {
    if (writing.names.empty()) {
      for (const ReadyRequest& other : ready_) writing.names.insert(other.request.name);
    }
    return writing.table.contains(name) || writing.names.contains(name);
  };
  const wire::CacheId id = cache.insert(request, in_use, writing.order.evicted);
  writing.cache_full = id == wire::kNoCacheId;
  return {id, request.name};
}

// Merges the values of an agreement under this id, and keeps the result as the base of the next one. A new id
// has zeros as its base, and so has an agreement without an id: members that get its name know no other base.
wire::Merged ReadyQueue::merge_values(const ReadyRequest& ready, wire::CacheId id, ResponseCache& cache) {
  std::string base = cache.base(id);
  if (id == wire::kNoCacheId) base.assign(roundelay::bytes_of(ready.request.fields), '\0');
  Agreed agreed = merge(ready.request, ready.values, base);
  wire::Merged merged{change_between(base, agreed.values), std::move(agreed.differences)};
  cache.set_base(id, std::move(agreed.values));
  return merged;
}

// Agreements come last: a rank submits them after the operations that they are about. So the sequence repeats
// from step to step, whether their reports came together or not.
void ReadyQueue::write(wire::Order& order, ResponseCache& cache, const RequestTable& table,
                       bool needs_tickets) {
  std::stable_partition(ready_.begin(), ready_.end(), [](const ReadyRequest& ready) {
    return ready.request.operation != Operation::kAgreement;
  });
  Writing writing{order, cache, table};
  std::vector<FusionCandidate> candidates;
  candidates.reserve(ready_.size());
  for (const ReadyRequest& ready : ready_) candidates.push_back({ready.bytes, ready.fusion_class});
  for (const auto& indices : plan_fusion(candidates, plan_)) {
    auto& operation = order.operations.emplace_back();
    for (const std::size_t i : indices) operation.tensors.push_back(tensor_for(ready_[i], writing));
    operation.extents = std::move(ready_[indices.front()].extents);
    operation.absent = std::move(ready_[indices.front()].absent);
    if (ready_[indices.front()].request.operation == Operation::kAgreement)
      operation.merged = merge_values(ready_[indices.front()], operation.tensors.front().id, cache);
    if (!needs_tickets || ready_[indices.front()].request.device != DeviceType::kGpu) continue;
    if (!order.tickets) order.tickets.emplace();
    order.tickets->operations.push_back(static_cast<std::int32_t>(order.operations.size() - 1));
  }
  classes_ = {};
  ready_.clear();
  bytes_ = 0;
}

}  // namespace roundelay::negotiate
