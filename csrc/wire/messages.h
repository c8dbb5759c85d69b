// What ranks say to each other on the control plane. Plain values; wire/codec.h turns them into bytes.
//
// Reports go up to the coordinator of a lane, orders come down to its members; both are numbered and
// travel in FIFO order between two ranks. Aborts, pings and timeline chunks travel apart from them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/group.h"
#include "base/status.h"

namespace roundelay::wire {

// 0 means "no id". Ids are assigned and evicted only by orders and never reused within an init.
using CacheId = std::uint32_t;
inline constexpr CacheId kNoCacheId = 0;

// First message on every connection: both sides must be the same build with the same config.
struct Hello {
  std::int32_t rank = 0;
  std::uint32_t generation = 0;  // of init: a late peer of an earlier init is refused
  std::string version;
  std::uint64_t config_hash = 0;
  friend bool operator==(const Hello&, const Hello&) = default;
};

struct TensorSpec {
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

// Where in a region of all ranks (base/region.h) an allreduce works.
struct RegionOffset {
  std::uint64_t key = 0;  // 0: in no region
  std::uint64_t offset = 0;
  friend bool operator==(const RegionOffset&, const RegionOffset&) = default;
};

// One rank's wish to take part in one operation: everything that must agree between ranks, and what the
// coordinator has to know of each.
struct Request {
  std::string name;
  Operation operation = Operation::kAllreduce;
  DType dtype = DType::kFloat32;
  DeviceType device = DeviceType::kCpu;  // of all its tensors
  ReduceOp reduce_op = ReduceOp::kSum;
  std::int32_t root = -1;  // broadcast: world rank; process set: the id to remove, -1 to add
  Scale prescale;
  Scale postscale;
  RegionOffset region;
  std::vector<std::int64_t> shape;  // allgather, alltoall: the first extent may differ between ranks
  std::vector<TensorSpec> others;   // a grouped operation's further tensors: all or nothing
  std::vector<std::int32_t> ranks;  // process set: its world ranks, ascending
  std::uint64_t unnamed = 0;        // not 0: this rank's number of the unnamed use, by operation
  bool cacheable = true;            // unnamed operations never come again under the same name
  std::string error;                // not empty: this rank's local checks failed, and why
  friend bool operator==(const Request&, const Request&) = default;
};

struct Report {
  LaneId lane;
  std::uint64_t last_order = 0;  // the newest order this rank had applied when it wrote this
  bool flush = false;            // this rank waits, or its step's last gradient is in: do not linger
  bool leaving = false;          // this rank called shutdown(): order nothing more that needs it
  bool removing = false;         // this rank removes the process set: its last report for this lane
  // In a locked schedule: this rank announces no more, after so many positions.
  std::optional<std::uint64_t> frozen;
  std::vector<Request> requests;  // in full, first time or after a change
  std::vector<CacheId> cached;    // ascending: requests the response cache knows
  friend bool operator==(const Report&, const Report&) = default;
};

// A member of a fused operation. Known to the cache: id alone. New: name, and the id it has from now on.
struct FusedTensor {
  CacheId id = kNoCacheId;
  std::string name;
  friend bool operator==(const FusedTensor&, const FusedTensor&) = default;
};

struct FusedOperation {
  std::vector<FusedTensor> tensors;  // in buffer order
  // Allgather (one member then): the first extents, of each tensor by group member. Empty for others.
  std::vector<std::int64_t> extents;
  std::vector<std::int32_t> absent;  // group members (indices, ascending) that have joined and skip this
  friend bool operator==(const FusedOperation&, const FusedOperation&) = default;
};

// The next use of `name` fails with this text on every rank.
struct Failure {
  std::string name;
  StatusCode code = StatusCode::kMismatch;
  std::string text;
  std::vector<std::uint64_t> counters{};  // of a join: as in Joined; a joined rank goes on from there
  friend bool operator==(const Failure&, const Failure&) = default;
};

// All ranks have joined.
struct Joined {
  std::int32_t last_rank = -1;          // world rank
  std::vector<std::uint64_t> counters;  // by operation: the last unnamed use that is over on all ranks
  friend bool operator==(const Joined&, const Joined&) = default;
};

// From here on fused operations come in this sequence, again and again, and none is ordered: a position is
// entered when all members have announced it. Uses that are reported and not ordered go back to their ranks.
struct Lock {
  std::uint64_t number = 0;                      // of the lane's locks, from 1
  std::vector<std::vector<CacheId>> operations;  // one period: their members, in buffer order
  friend bool operator==(const Lock&, const Lock&) = default;
};

// Consecutive numbers that rank 0 gives to operations on a GPU, across process sets: a rank enqueues those
// that it takes part in one after the other, from the least up.
struct Tickets {
  std::uint64_t first = 0;              // from 1
  std::vector<std::uint64_t> previous;  // by group member: its last ticket before these; 0: none
  friend bool operator==(const Tickets&, const Tickets&) = default;
};

// When an order's operations on a GPU may be enqueued: other process sets have some there too.
struct OrderTickets {
  std::vector<std::int32_t> operations;  // which these are (indices, ascending); not empty
  Tickets tickets;
  friend bool operator==(const OrderTickets&, const OrderTickets&) = default;
};

struct Order {
  LaneId lane;
  std::uint64_t sequence = 0;  // 1, 2, 3 ... for each lane
  std::vector<FusedOperation> operations;
  std::vector<Failure> failures;
  std::vector<CacheId> evicted;  // applied before anything else in this order
  std::optional<Joined> joined;  // after the operations of this order
  std::optional<Lock> lock;      // after everything else in this order
  bool freeze = false;           // announce no more, and say how far you are
  // The lock is over: positions before this one are carried out, before all that this order has; what was
  // submitted for later ones is negotiated.
  std::optional<std::uint64_t> unlock{};
  std::optional<OrderTickets> tickets{};
  std::int32_t shut_down_by = -1;  // not -1: that rank left; this is the lane's last order
  bool removed = false;            // all ranks removed the process set; this is the lane's last order
  friend bool operator==(const Order&, const Order&) = default;
};

// The first cause of a fault that ends the job's communication. Outruns orders.
struct Abort {
  std::int32_t culprit = -1;  // world rank, -1 if unknown
  std::string text;
  friend bool operator==(const Abort&, const Abort&) = default;
};

// "I have been inside this operation past its progress deadline, waiting for that peer."
struct Stuck {
  LaneId lane;
  std::uint64_t sequence = 0;
  std::int32_t waiting_for = -1;  // world rank, -1 if unknown
  std::string text;
  friend bool operator==(const Stuck&, const Stuck&) = default;
};

// Are you there, and what does your clock say? Times are steady-clock nanoseconds of the writer.
struct Ping {
  std::uint64_t token = 0;
  std::int64_t sent = 0;
  friend bool operator==(const Ping&, const Ping&) = default;
};
struct Pong {
  std::uint64_t token = 0;
  std::int64_t sent = 0;  // copied from the ping
  std::int64_t here = 0;  // the answering rank's clock
  friend bool operator==(const Pong&, const Pong&) = default;
};

// A piece of one rank's timeline (timeline/timeline.h), on its way to rank 0's file.
struct TimelineChunk {
  std::int32_t rank = 0;
  bool last = false;
  std::string events;
  friend bool operator==(const TimelineChunk&, const TimelineChunk&) = default;
};

// What a rank tells all others at init, through the bootstrap's one exchange.
struct Introduction {
  Hello hello;
  std::string node;  // equal on the ranks of one node
  std::string
      tcp_address;  // where its TCP channel listens (channel/tcp/tcp_address.h); empty: it cannot use sockets
  std::string shm_socket;  // where it hands out shared memory (platform/shm/handover.h); empty: nowhere
  friend bool operator==(const Introduction&, const Introduction&) = default;
};

// Rank 0's word to all ranks: record from now on, or stop and send what is left.
struct TimelineSwitch {
  bool on = false;
  bool mark_cycles = false;
  friend bool operator==(const TimelineSwitch&, const TimelineSwitch&) = default;
};

// A process set's coordinator to rank 0: these ranks' operations on a GPU take turns with other sets' from
// here on; or, with no ranks, the set is over.
struct TicketMembers {
  LaneId lane;
  std::vector<std::int32_t> ranks;  // world ranks, ascending
  friend bool operator==(const TicketMembers&, const TicketMembers&) = default;
};

// ... and for each order that takes a turn.
struct TicketRequest {
  LaneId lane;
  std::uint64_t sequence = 0;
  std::uint32_t operations = 0;  // how many tickets
  friend bool operator==(const TicketRequest&, const TicketRequest&) = default;
};

// Rank 0's answer. Without tickets: it leaves, and gives none any more.
struct TicketGrant {
  LaneId lane;
  std::uint64_t sequence = 0;
  std::optional<Tickets> tickets;
  friend bool operator==(const TicketGrant&, const TicketGrant&) = default;
};

// To a rank that others wait for: what does your program do?
struct StateQuestion {
  friend bool operator==(const StateQuestion&, const StateQuestion&) = default;
};

struct StateAnswer {
  std::string text;  // "its process 4711 computes; Python is in ..."
  friend bool operator==(const StateAnswer&, const StateAnswer&) = default;
};

using Message =
    std::variant<Hello, Report, Order, Abort, Stuck, Ping, Pong, TimelineChunk, Introduction, TimelineSwitch,
                 TicketMembers, TicketRequest, TicketGrant, StateQuestion, StateAnswer>;

}  // namespace roundelay::wire
