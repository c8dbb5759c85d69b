// Keeps the requests that all members have reported, until an order takes them. Pure.
//
// Requests wait for more of them until the firing rule (fusion_plan.h) lets them go together: at theta, or
// when the linger ends. The order lists them as fused operations and names each by its cache id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/dtype.h"
#include "negotiate/fusion_plan.h"
#include "negotiate/request_table.h"
#include "negotiate/response_cache.h"
#include "wire/messages.h"

namespace roundelay::negotiate {

class ReadyQueue {
 public:
  ReadyQueue(FusionLimits plan, FireLimits fire) : plan_(plan), fire_(fire) {}

  // `absent`: members (ascending) that have joined and skip the operation.
  void push(ReportedRequest reported, std::vector<std::int32_t> absent, TimePoint now);
  [[nodiscard]] bool empty() const { return ready_.empty(); }
  // Returns true if the firing rule lets the requests go now. `end_linger`: a member waits for them.
  [[nodiscard]] bool fires(bool end_linger, TimePoint now) const;
  // Returns the time at which the requests go, if nobody ends the linger: now if theta is reached, else when
  // the linger of the oldest request ends.
  [[nodiscard]] Deadline next_due() const;

  // Moves all requests into `order` as fused operations. Assigns ids of `cache`, and adds those that it
  // evicts to order.evicted. Ids of names in `table`, the coordinator's, stay: a member's report may name
  // them. `needs_tickets`: marks the operations on GPUs in order.tickets.
  void write(wire::Order& order, ResponseCache& cache, const RequestTable& table, bool needs_tickets);

 private:
  struct ReadyRequest {
    wire::Request request;
    std::size_t bytes;
    std::uint64_t fusion_class;
    std::vector<std::int64_t> extents;
    std::vector<std::int32_t> absent;
    std::vector<ReportedValues> values;
  };
  // One order in the making.
  struct Writing {
    wire::Order& order;
    ResponseCache& cache;
    const RequestTable& table;
    std::unordered_set<std::string_view> names{};  // the names in ready_; filled when first needed
    bool cache_full = false;
  };
  // Numbers the fusion classes of one plan: scales may change from step to step.
  class Classes {
   public:
    std::uint64_t class_of(const wire::Request& request, const std::vector<std::int32_t>& absent);

   private:
    using Key = std::tuple<DType, DeviceType, ReduceOp, double, std::int64_t, double, std::int64_t,
                           std::vector<std::int32_t>>;
    std::map<Key, std::uint64_t> numbers_;
  };

  wire::FusedTensor tensor_for(const ReadyRequest& ready, Writing& writing) const;
  static wire::Merged merge_values(const ReadyRequest& ready, wire::CacheId id, ResponseCache& cache);

  FusionLimits plan_;
  FireLimits fire_;
  std::vector<ReadyRequest> ready_;  // the first one that became ready comes first
  std::size_t bytes_ = 0;
  TimePoint oldest_{};
  Classes classes_;  // of ready_
};

}  // namespace roundelay::negotiate
