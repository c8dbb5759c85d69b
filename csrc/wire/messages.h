// The messages of the control plane. Plain values; wire/codec.h turns them into bytes.
//
// Members of a lane send reports to its coordinator, and the coordinator sends orders to all members; in a
// large group both go through leaders.
// Messages between two ranks keep their order.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/agreement.h"
#include "base/dtype.h"
#include "base/group.h"
#include "base/status.h"

namespace roundelay::wire {

// Stands for a request that all members of a lane know (negotiate/response_cache.h). Only orders assign and
// evict ids. A lane never uses an id again.
using CacheId = std::uint32_t;
inline constexpr CacheId kNoCacheId = 0;

// The most ids in one message. Runs of ids are stored as their bounds, so without a limit a few bytes could
// make a long list. No response cache holds more (ROUNDELAY_CACHE_CAPACITY).
inline constexpr std::size_t kMaxIds = 65536;

// The first message on every connection: both sides must be the same build with the same config.
struct Hello {
  std::int32_t rank = 0;
  std::uint32_t generation = 0;       // counts the inits: a late peer of an earlier init is refused
  std::string version;                // the build's, of base/version.h
  std::vector<std::string> settings;  // Config::shared_settings()
  std::uint64_t stream = 0;           // the group whose data the connection carries; 0: control messages
  friend bool operator==(const Hello&, const Hello&) = default;
};

struct TensorSpec {
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

// The place of an allreduce in a region (base/region.h). It is the same on all members.
struct RegionOffset {
  std::uint64_t key = 0;     // 0: in no region
  std::uint64_t offset = 0;  // bytes
  friend bool operator==(const RegionOffset&, const RegionOffset&) = default;
};

// Ends Request::technique if the bucket flushes its residual (compress/technique.h).
inline constexpr std::string_view kFlush = " flush";

// One rank's request to take part in one operation. It contains everything that must agree between ranks, and
// everything else that the coordinator has to know about this rank.
struct Request {
  std::string name;
  Operation operation = Operation::kAllreduce;
  DType dtype = DType::kFloat32;         // the first tensor's
  DeviceType device = DeviceType::kCpu;  // all tensors are there
  ReduceOp reduce_op = ReduceOp::kSum;
  // Broadcast, and agreement if a field wants it: world rank. Process set: the id to remove, -1 to add.
  std::int32_t root = -1;
  Scale prescale;
  Scale postscale;
  RegionOffset region;
  // The shape of the first tensor. In an allgather or alltoall the first extent may differ between ranks.
  std::vector<std::int64_t> shape;
  std::vector<TensorSpec> others;      // a grouped operation's further tensors: all or nothing
  std::vector<std::int32_t> ranks;     // process set: its world ranks, ascending
  std::vector<AgreementField> fields;  // agreement: the fields of its values
  // Not 0: the name was made up, and this is the number of this rank's unnamed submission of the operation.
  std::uint64_t unnamed = 0;
  bool cacheable = true;  // false: the response cache does not keep it
  // An allreduce in a region has here the text of the bucket's technique (compress/technique.h), and after it
  // kFlush if the bucket flushes. Empty: dense.
  std::string technique;
  std::string error;  // not empty: this rank's local checks failed, and why
  friend bool operator==(const Request&, const Request&) = default;
};

// The change that turns the base of an agreement into a rank's values. The base is the last result under this
// id; zeros if the request is reported in full.
struct Contribution {
  std::uint32_t request = 0;  // an index into the report's `requests`, and after these into its `cached`
  ByteChange change;          // not empty
  friend bool operator==(const Contribution&, const Contribution&) = default;
};

// A member's message to the coordinator: its new requests, and changes of its state.
struct Report {
  LaneId lane;
  std::uint64_t last_order = 0;  // the newest order that this rank had applied when it wrote the report
  bool end_linger =
      false;             // order all that is ready: a caller waits, or the step's last gradient was submitted
  bool leaving = false;  // this rank called shutdown(): order nothing more that needs it
  bool removing = false;  // this rank removes the process set: its last report for this lane
  // Set if this rank freezes under a schedule lock: the number of positions that it has announced. It
  // announces no more.
  std::optional<std::uint64_t> frozen;
  std::vector<Request> requests;  // new or changed ones, in full
  std::vector<CacheId> cached;    // ascending: ids of requests that the response cache knows
  // By ascending request; none for an agreement whose values equal their base.
  std::vector<Contribution> contributions{};
  friend bool operator==(const Report&, const Report&) = default;
};

// What one member's values in an agreement change, where others below the same leader change something else.
struct MemberChange {
  std::int32_t member = 0;    // an index in the group
  std::uint32_t request = 0;  // as in Contribution
  ByteChange change;          // empty: nothing
  friend bool operator==(const MemberChange&, const MemberChange&) = default;
};

// A report on its way through leaders (negotiate/report_tree.h).
struct MemberReport {
  std::int32_t member = 0;  // whose report it is: an index in the group
  // The member and all below it have reported this alike, but for `others`. `last_order` is the least, and
  // the members do not say that they leave or remove the process set.
  bool all_below = false;
  Report report{};
  std::vector<MemberChange> others{};  // by ascending request, then member
  friend bool operator==(const MemberReport&, const MemberReport&) = default;
};

// A leader's message to the member above it.
struct Reports {
  LaneId lane;
  std::vector<MemberReport> reports;
  friend bool operator==(const Reports&, const Reports&) = default;
};

// A tensor of a fused operation, or all tensors of a grouped operation. A tensor that the response cache
// knows has its id only. A new one has its name, and the id that this order assigns to it; kNoCacheId: none.
struct FusedTensor {
  CacheId id = kNoCacheId;
  std::string name;
  friend bool operator==(const FusedTensor&, const FusedTensor&) = default;
};

// The result of an agreement.
struct Merged {
  // The change that turns the base into the merged values. The base is the last result under this id; zeros
  // if the order has the name.
  ByteChange change;
  std::vector<Difference> differences;
  friend bool operator==(const Merged&, const Merged&) = default;
};

// One collective over one or more tensors, or an agreement.
struct FusedOperation {
  std::vector<FusedTensor> tensors;  // in buffer order
  // The first extents of an allgather, which is never fused: those of all members for the first tensor of its
  // group, then for the next one. Empty for other operations.
  std::vector<std::int64_t> extents;
  std::vector<std::int32_t> absent;  // group members (indices, ascending) that have joined and skip this
  std::optional<Merged> merged{};    // set in an agreement, which is never fused
  friend bool operator==(const FusedOperation&, const FusedOperation&) = default;
};

// The next submission of `name` fails with this text on every rank.
struct Failure {
  std::string name;
  StatusCode code = StatusCode::kMismatch;  // kMismatch: ranks disagree; kIncomplete: any other cause
  std::string text;
  std::vector<std::uint64_t> counters{};  // a failed join's Joined::counters
  friend bool operator==(const Failure&, const Failure&) = default;
};

// All members have joined.
struct Joined {
  std::int32_t last_rank = -1;  // the world rank that joined last
  // For each operation, the number of the last unnamed submission that has ended. All ranks continue to count
  // from there.
  std::vector<std::uint64_t> counters;
  friend bool operator==(const Joined&, const Joined&) = default;
};

// Begins a schedule lock. After this order the fused operations run in this sequence, again and again,
// without orders: a member enters a position when all members have announced it. Each member withdraws the
// requests that it has reported and that no order contains.
struct Lock {
  std::uint64_t number = 0;                      // counts the lane's locks, from 1
  std::vector<std::vector<CacheId>> operations;  // one period: their tensors, in buffer order
  friend bool operator==(const Lock&, const Lock&) = default;
};

// Consecutive numbers that rank 0 gives to operations on GPUs, across process sets. A rank enqueues the
// operations that it takes part in by ascending ticket.
struct Tickets {
  std::uint64_t first = 0;              // 0: not given yet
  std::vector<std::uint64_t> previous;  // each group member's last ticket before these; 0: none
  friend bool operator==(const Tickets&, const Tickets&) = default;
};

// Gives tickets to operations of an order on GPUs that other process sets use too.
struct OrderTickets {
  std::vector<std::int32_t> operations;  // their indices in the order, ascending; not empty
  Tickets tickets;                       // one for each
  friend bool operator==(const OrderTickets&, const OrderTickets&) = default;
};

// The coordinator's decision, the same for all members of the lane.
struct Order {
  LaneId lane;
  std::uint64_t sequence = 0;  // 1, 2, 3 ... for each lane
  std::vector<FusedOperation> operations;
  std::vector<Failure> failures;
  std::vector<CacheId> evicted;  // applied before anything else in this order
  std::optional<Joined> joined;  // applied after the operations of this order
  std::optional<Lock> lock;      // applied after everything else in this order
  bool freeze = false;  // members announce no more, and report how many positions they have announced
  // The lock ends at this position. The positions before it are carried out before all else in this order.
  // Submissions for later positions are negotiated.
  std::optional<std::uint64_t> unlock{};
  std::optional<OrderTickets> tickets{};
  std::int32_t shutdown_by = -1;  // not -1: that rank left; this is the lane's last order
  bool removed = false;           // all ranks removed the process set; this is the lane's last order
  friend bool operator==(const Order&, const Order&) = default;
};

// Ends the job's communication, with the first cause of a fault.
struct Abort {
  std::int32_t culprit = -1;  // world rank, -1 if unknown
  std::string text;
  bool mismatch = false;  // two ranks have called different things
  friend bool operator==(const Abort&, const Abort&) = default;
};

// Tells the lane's arbiter (negotiate/watchdog.h) that an operation of this rank is past its progress
// deadline.
struct Stuck {
  LaneId lane;
  std::uint64_t sequence = 0;     // the order's
  std::int32_t waiting_for = -1;  // world rank, -1 if unknown
  std::string text;               // names the operation
  friend bool operator==(const Stuck&, const Stuck&) = default;
};

// Asks whether a rank is alive, and for its clock. Times are steady-clock nanoseconds of the writer.
struct Ping {
  std::uint64_t token = 0;  // 0: only a sign of life; else the number of a clock sample
  std::int64_t sent = 0;
  friend bool operator==(const Ping&, const Ping&) = default;
};
struct Pong {
  std::uint64_t token = 0;  // copied from the ping
  std::int64_t sent = 0;    // copied from the ping
  std::int64_t here = 0;    // the answering rank's clock
  friend bool operator==(const Pong&, const Pong&) = default;
};

// A piece of one rank's timeline (timeline/timeline.h), for the file that rank 0 writes.
struct TimelineChunk {
  std::int32_t rank = 0;
  bool last = false;   // the rank sends no more
  std::string events;  // the result of Timeline::drain()
  friend bool operator==(const TimelineChunk&, const TimelineChunk&) = default;
};

// Introduces a rank to all others at init, through the bootstrap.
struct Introduction {
  Hello hello;
  std::string node;     // equal on the ranks of one node
  std::string machine;  // equal on the ranks that one kernel runs (platform/tcp/address.h); empty: not known
  // Its statements about its place in the cluster, as bootstrap/topology.h describes them.
  std::string topology;
  std::string launcher_rack;
  std::string tcp_address;   // of its TCP channel (connect/tcp_address.h); empty: it cannot use sockets
  std::string data_address;  // of its data plane, in the same form; empty: it has none
  std::string shm_socket;    // where it hands out shared memory (platform/shm/handover.h); empty: nowhere
  std::string tuning;        // rank 0's tuning file (collective/tuning/tuning.h); empty: none, and elsewhere
  friend bool operator==(const Introduction&, const Introduction&) = default;
};

// Rank 0 tells all ranks to record from now on, or to stop and send what is left.
struct TimelineSwitch {
  bool on = false;
  bool mark_cycles = false;  // record orders too
  friend bool operator==(const TimelineSwitch&, const TimelineSwitch&) = default;
};

// A process set's coordinator tells rank 0 that the operations of the set on GPUs need tickets from now on,
// as other sets use the GPUs too.
struct TicketMembers {
  LaneId lane;
  std::vector<std::int32_t> ranks;  // world ranks, ascending; empty: the set is over
  friend bool operator==(const TicketMembers&, const TicketMembers&) = default;
};

// A process set's coordinator asks rank 0 for the tickets of an order.
struct TicketRequest {
  LaneId lane;
  std::uint64_t sequence = 0;    // the order's
  std::uint32_t operations = 0;  // the number of tickets that it needs
  friend bool operator==(const TicketRequest&, const TicketRequest&) = default;
};

// Rank 0's answer to a TicketRequest.
struct TicketGrant {
  LaneId lane;
  std::uint64_t sequence = 0;      // the order's
  std::optional<Tickets> tickets;  // nothing: rank 0 leaves and gives no more tickets
  friend bool operator==(const TicketGrant&, const TicketGrant&) = default;
};

// Asks a rank, for which others wait, what its program does.
struct StateQuestion {
  friend bool operator==(const StateQuestion&, const StateQuestion&) = default;
};

struct StateAnswer {
  std::string text;  // "its process 4711 computes; Python is in ..."
  friend bool operator==(const StateAnswer&, const StateAnswer&) = default;
};

// A cell of lock/announcements.h, as a member has shown it to its node.
struct ShownCell {
  std::int32_t member = 0;  // an index in the group
  std::uint32_t number = 0;
  std::uint64_t submission = 0;
  std::array<std::uint64_t, 7> words{};
  friend bool operator==(const ShownCell&, const ShownCell&) = default;
};

// What has changed in the announcements of one part of a group's nodes (lock/relay.h).
struct Announced {
  LaneId lane;
  // The least word of that part. 0: only asks who leads the sender's node to look.
  std::uint64_t word = 0;
  std::vector<ShownCell> cells;  // all that came since the last message in this direction
  friend bool operator==(const Announced&, const Announced&) = default;
};

// The index of a type is its kind in the encoding: append only.
using Message =
    std::variant<Hello, Report, Order, Abort, Stuck, Ping, Pong, TimelineChunk, Introduction, TimelineSwitch,
                 TicketMembers, TicketRequest, TicketGrant, StateQuestion, StateAnswer, Announced, Reports>;

}  // namespace roundelay::wire
