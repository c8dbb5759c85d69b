// Gives the fields of each message in the order of their bytes. One function for each type serves Writer and
// Reader: `io` is one of them. To add a message, append it to the variant in wire/messages.h and write its
// layout here.
//
// kLeastX is the least number of bytes that an X takes. Lists of X check their length with it.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include "wire/messages.h"

namespace roundelay::wire {

template <typename M, typename T>
concept Is = std::same_as<std::remove_const_t<M>, T>;

inline constexpr int kStatusCodeCount = static_cast<int>(StatusCode::kIncomplete) + 1;

void layout(auto& io, Is<LaneId> auto& lane) {
  io.integer("lane.process_set", lane.process_set);
  io.integer("lane.device", lane.device);
}

void layout(auto& io, Is<Scale> auto& scale) {
  io.fixed("scale.factor", scale.factor);
  io.integer("scale.divisor", scale.divisor);
  io.require(scale.divisor >= 1, "scale.divisor", "is less than 1");
}

void layout(auto& io, Is<Hello> auto& m) {
  io.integer("hello.rank", m.rank);
  io.integer("hello.generation", m.generation);
  io.text("hello.version", m.version);
  io.list("hello.settings", m.settings, 1, [&](auto& setting) { io.text("hello.setting", setting); });
  io.integer("hello.stream", m.stream);
}

// Lays out a list of numbers that are not negative, such as extents or ranks.
void naturals(auto& io, const char* field, auto& values) {
  io.list(field, values, 1, [&](auto& value) {
    io.integer(field, value);
    io.require(value >= 0, field, "is negative");
  });
}

// Lays out a list of unsigned numbers.
void counts(auto& io, const char* field, auto& values) {
  io.list(field, values, 1, [&](auto& value) { io.integer(field, value); });
}

void layout(auto& io, Is<TensorSpec> auto& m) {
  io.enumeration("tensor.dtype", m.dtype, kMovedDTypeCount);
  naturals(io, "tensor.shape", m.shape);
}
inline constexpr std::size_t kLeastTensorSpec = 2;

void layout(auto& io, Is<AgreementField> auto& m) {
  io.enumeration("field.merge", m.merge, kMergeCount);
  io.integer("field.bytes", m.bytes);
  io.require(m.bytes <= kMostAgreementBytes, "field.bytes", "is too large");
}
inline constexpr std::size_t kLeastField = 2;

void layout(auto& io, Is<ByteChange> auto& m) {
  std::uint64_t next = 0;  // the least offset that may follow
  io.list("change.runs", m, 3, [&](auto& run) {
    io.integer("run.offset", run.offset);
    io.text("run.bytes", run.bytes);
    io.require(!run.bytes.empty(), "run.bytes", "is empty");
    io.require(run.offset >= next, "run.offset", "does not ascend");
    next = std::uint64_t{run.offset} + run.bytes.size();
  });
}

void layout(auto& io, Is<Request> auto& m) {
  io.text("request.name", m.name);
  io.enumeration("request.operation", m.operation, kOperationCount);
  io.enumeration("request.dtype", m.dtype, kMovedDTypeCount);
  io.enumeration("request.device", m.device, kDeviceTypeCount);
  io.enumeration("request.reduce_op", m.reduce_op, kReduceOpCount);
  io.integer("request.root", m.root);
  layout(io, m.prescale);
  layout(io, m.postscale);
  io.integer("request.region.key", m.region.key);
  io.integer("request.region.offset", m.region.offset);
  naturals(io, "request.shape", m.shape);
  io.list("request.others", m.others, kLeastTensorSpec, [&](auto& tensor) { layout(io, tensor); });
  naturals(io, "request.ranks", m.ranks);
  io.list("request.fields", m.fields, kLeastField, [&](auto& field) { layout(io, field); });
  io.require(m.fields.size() <= kMostAgreementFields, "request.fields", "has too many");
  io.require(bytes_of(m.fields) <= kMostAgreementBytes, "request.fields", "is too large");
  io.integer("request.unnamed", m.unnamed);
  io.boolean("request.cacheable", m.cacheable);
  io.text("request.technique", m.technique);
  io.text("request.error", m.error);
}
inline constexpr std::size_t kLeastRequest = 34;

inline constexpr std::size_t kLeastContribution = 5;

void layout(auto& io, Is<Report> auto& m) {
  layout(io, m.lane);
  io.integer("report.last_order", m.last_order);
  bool frozen = m.frozen.has_value(), contributes = !m.contributions.empty();
  io.flags("report.flags", m.end_linger, m.leaving, m.removing, frozen, contributes);
  io.present(frozen, m.frozen, [&](auto& count) { io.integer("report.frozen", count); });
  io.list("report.requests", m.requests, kLeastRequest, [&](auto& request) { layout(io, request); });
  io.runs("report.cached", m.cached);
  if (!contributes) return;
  std::uint64_t next = 0;  // the least index that may follow
  io.list("report.contributions", m.contributions, kLeastContribution, [&](auto& contribution) {
    io.integer("contribution.request", contribution.request);
    io.require(contribution.request >= next, "contribution.request", "does not ascend");
    next = std::uint64_t{contribution.request} + 1;
    layout(io, contribution.change);
    io.require(!contribution.change.empty(), "contribution.change", "is empty");
  });
  io.require(next > 0, "report.contributions", "is empty");
  io.require(next <= m.requests.size() + m.cached.size(), "contribution.request", "is none of the report's");
}

void layout(auto& io, Is<MemberReport> auto& m) {
  io.integer("reports.member", m.member);
  io.require(m.member >= 0, "reports.member", "is negative");
  io.boolean("reports.all_below", m.all_below);
  layout(io, m.report);
  std::pair<std::uint32_t, std::int64_t> last{0, -1};  // request and member: what follows is greater
  io.list("reports.others", m.others, 3, [&](auto& other) {
    io.integer("other.request", other.request);
    io.integer("other.member", other.member);
    const std::pair<std::uint32_t, std::int64_t> here{other.request, other.member};
    io.require(here > last, "other.member", "does not ascend");
    last = here;
    io.require(other.request < m.report.requests.size() + m.report.cached.size(), "other.request",
               "is none of the report's");
    layout(io, other.change);
  });
}
inline constexpr std::size_t kLeastMemberReport = 9;

void layout(auto& io, Is<Reports> auto& m) {
  layout(io, m.lane);
  std::size_t ids = 0;
  io.list("reports.reports", m.reports, kLeastMemberReport, [&](auto& report) {
    layout(io, report);
    ids += report.report.cached.size();
    io.require(ids <= kMaxIds, "reports.reports", "have too many ids");
  });
}

void layout(auto& io, Is<Difference> auto& m) {
  io.integer("difference.field", m.field);
  io.integer("difference.rank", m.rank);
  io.integer("difference.other_rank", m.other_rank);
  io.text("difference.value", m.value);
  io.text("difference.other_value", m.other_value);
}
inline constexpr std::size_t kLeastDifference = 5;

void layout(auto& io, Is<Merged> auto& m) {
  layout(io, m.change);
  io.list("merged.differences", m.differences, kLeastDifference,
          [&](auto& difference) { layout(io, difference); });
}

void layout(auto& io, Is<FusedOperation> auto& m) {
  // Ids of tensors mostly follow one another, and only new tensors have names. So a tensor takes one byte in
  // the steady state.
  std::int64_t expected = 0;
  io.list("operation.tensors", m.tensors, 1, [&](auto& tensor) {
    bool named = !tensor.name.empty();
    io.step("tensor.id", tensor.id, expected, named);
    if (named) io.text("tensor.name", tensor.name);
    io.require(named == !tensor.name.empty(), "tensor.name", "is empty");
    io.require(named || tensor.id != kNoCacheId, "tensor.id", "is neither an id nor named");
  });
  naturals(io, "operation.extents", m.extents);
  naturals(io, "operation.absent", m.absent);
  io.optional("operation.merged", m.merged, [&](auto& merged) { layout(io, merged); });
}
inline constexpr std::size_t kLeastOperation = 4;

void layout(auto& io, Is<Failure> auto& m) {
  io.text("failure.name", m.name);
  io.enumeration("failure.code", m.code, kStatusCodeCount);
  io.require(m.code != StatusCode::kOk, "failure.code", "is success");
  io.text("failure.text", m.text);
  counts(io, "failure.counters", m.counters);
}
inline constexpr std::size_t kLeastFailure = 4;

void layout(auto& io, Is<Joined> auto& m) {
  io.integer("joined.last_rank", m.last_rank);
  counts(io, "joined.counters", m.counters);
}

void layout(auto& io, Is<Lock> auto& m) {
  io.integer("lock.number", m.number);
  io.list("lock.operations", m.operations, 2, [&](auto& ids) {
    io.list("lock.ids", ids, 1, [&](auto& id) { io.integer("lock.id", id); });
    io.require(!ids.empty(), "lock.ids", "is empty");
  });
  io.require(!m.operations.empty(), "lock.operations", "is empty");
}

void layout(auto& io, Is<Tickets> auto& m) {
  io.integer("tickets.first", m.first);
  io.require(m.first > 0, "tickets.first", "is 0");
  counts(io, "tickets.previous", m.previous);
}

void layout(auto& io, Is<OrderTickets> auto& m) {
  naturals(io, "tickets.operations", m.operations);
  io.require(!m.operations.empty(), "tickets.operations", "is empty");
  layout(io, m.tickets);
}

void layout(auto& io, Is<Order> auto& m) {
  layout(io, m.lane);
  io.integer("order.sequence", m.sequence);
  io.list("order.operations", m.operations, kLeastOperation, [&](auto& operation) { layout(io, operation); });
  io.list("order.failures", m.failures, kLeastFailure, [&](auto& failure) { layout(io, failure); });
  io.list("order.evicted", m.evicted, 1, [&](auto& id) { io.integer("order.evicted", id); });
  io.optional("order.joined", m.joined, [&](auto& joined) { layout(io, joined); });
  io.integer("order.shutdown_by", m.shutdown_by);
  bool locks = m.lock.has_value(), unlocks = m.unlock.has_value(), numbers = m.tickets.has_value();
  io.flags("order.flags", m.removed, m.freeze, locks, unlocks, numbers);
  io.present(locks, m.lock, [&](auto& lock) { layout(io, lock); });
  io.present(unlocks, m.unlock, [&](auto& from) { io.integer("order.unlock", from); });
  io.present(numbers, m.tickets, [&](auto& tickets) { layout(io, tickets); });
}

void layout(auto& io, Is<Abort> auto& m) {
  io.integer("abort.culprit", m.culprit);
  io.text("abort.text", m.text);
  io.flags("abort.flags", m.mismatch);
}

void layout(auto& io, Is<Stuck> auto& m) {
  layout(io, m.lane);
  io.integer("stuck.sequence", m.sequence);
  io.integer("stuck.waiting_for", m.waiting_for);
  io.text("stuck.text", m.text);
}

void layout(auto& io, Is<Ping> auto& m) {
  io.integer("ping.token", m.token);
  io.fixed("ping.sent", m.sent);
}

void layout(auto& io, Is<Pong> auto& m) {
  io.integer("pong.token", m.token);
  io.fixed("pong.sent", m.sent);
  io.fixed("pong.here", m.here);
}

void layout(auto& io, Is<TimelineChunk> auto& m) {
  io.integer("timeline.rank", m.rank);
  io.boolean("timeline.last", m.last);
  io.text("timeline.events", m.events);
}

void layout(auto& io, Is<TimelineSwitch> auto& m) {
  io.boolean("timeline.on", m.on);
  io.boolean("timeline.mark_cycles", m.mark_cycles);
}

void layout(auto& io, Is<TicketMembers> auto& m) {
  layout(io, m.lane);
  naturals(io, "tickets.ranks", m.ranks);
}

void layout(auto& io, Is<TicketRequest> auto& m) {
  layout(io, m.lane);
  io.integer("tickets.sequence", m.sequence);
  io.integer("tickets.count", m.operations);
}

void layout(auto& io, Is<TicketGrant> auto& m) {
  layout(io, m.lane);
  io.integer("tickets.sequence", m.sequence);
  io.optional("tickets.tickets", m.tickets, [&](auto& tickets) { layout(io, tickets); });
}

void layout(auto& /*io*/, Is<StateQuestion> auto& /*m*/) {}

void layout(auto& io, Is<StateAnswer> auto& m) { io.text("state.text", m.text); }

void layout(auto& io, Is<ShownCell> auto& m) {
  io.integer("cell.member", m.member);
  io.integer("cell.number", m.number);
  io.integer("cell.submission", m.submission);
  for (auto& word : m.words) io.fixed("cell.words", word);
}
inline constexpr std::size_t kLeastShownCell = 3 + 7 * sizeof(std::uint64_t);

void layout(auto& io, Is<Announced> auto& m) {
  layout(io, m.lane);
  io.integer("announced.word", m.word);
  io.list("announced.cells", m.cells, kLeastShownCell, [&](auto& cell) { layout(io, cell); });
}

void layout(auto& io, Is<Introduction> auto& m) {
  layout(io, m.hello);
  io.text("introduction.node", m.node);
  io.text("introduction.machine", m.machine);
  io.text("introduction.topology", m.topology);
  io.text("introduction.launcher_rack", m.launcher_rack);
  io.text("introduction.tcp_address", m.tcp_address);
  io.text("introduction.data_address", m.data_address);
  io.text("introduction.shm_socket", m.shm_socket);
  io.text("introduction.tuning", m.tuning);
}

}  // namespace roundelay::wire
