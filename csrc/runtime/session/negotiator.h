// Joins submit, negotiate and channel: one process's whole control plane as a step function.
//
// Whoever holds the negotiation token calls step(); nothing in it blocks. The simulation drives many of these
// in one thread over the inproc channel with a fake clock.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/annotations.h"
#include "channel/channel.h"
#include "negotiate/coordinator.h"
#include "negotiate/coordinator_watch.h"
#include "negotiate/gpu_order.h"
#include "negotiate/order_queue.h"
#include "negotiate/participant.h"
#include "negotiate/watchdog.h"
#include "runtime/session/neighbours.h"
#include "submit/table.h"
#include "timeline/clock.h"
#include "wire/messages.h"

namespace roundelay::runtime {

// What the control plane decides; called by the token's holder.
class NegotiationSink {
 public:
  virtual ~NegotiationSink() = default;
  // The next fused operation of the lane, in order.
  virtual void execute(LaneId lane, std::uint64_t sequence, negotiate::Execution execution) = 0;
  virtual void settle(LaneId lane, negotiate::Settled settled) = 0;
  // The lane's table has a schedule lock from here on (the order's sequence), behind all that was ordered.
  virtual void locked(LaneId lane, std::uint64_t sequence) = 0;
  // The lock is over: execute what is left of the positions before `from`, then end the table's schedule.
  virtual void unlock(LaneId lane, std::uint64_t from) = 0;
  // The join in flight is over: behind all that was ordered before it.
  virtual void joined(LaneId lane, const wire::Joined& joined) = 0;
  // Nothing will be ordered any more: all ranks removed the process set, or a rank left.
  virtual void removed(LaneId lane) = 0;
  virtual void rank_left(LaneId lane, int by_rank) = 0;
  // The first cause; nothing is executed or settled after it.
  virtual void abort(const Status& cause) = 0;
  virtual void ready(LaneId lane, const negotiate::ReadyNote& note) = 0;  // on coordinators
  virtual void clock_offset(std::int64_t nanoseconds) = 0;                // to rank 0's clock; not on rank 0
  virtual void timeline_chunk(wire::TimelineChunk chunk) = 0;             // on rank 0
  virtual void timeline_switch(wire::TimelineSwitch to) = 0;              // not on rank 0
  // A coordinator, maybe this rank itself, wants to know what the program does: for Negotiator::answer_state.
  virtual void state_asked(int by_rank) = 0;
};

struct ControlCounters {
  std::atomic<std::int64_t> reports{0}, orders{0}, messages_sent{0}, message_bytes{0}, cached_requests{0},
      full_requests{0}, locks{0}, unlocks{0};
};

class Negotiator {
 public:
  Negotiator(channel::Channel& channel, int rank, int size, negotiate::CoordinatorOptions options,
             NegotiationSink& sink);

  // Before the first step: whose processes this rank can see.
  void know(Neighbours neighbours) { neighbours_ = std::move(neighbours); }
  // Before the first step, or by the token's holder. `table` outlives the lane. Messages that belong to a
  // lane that is not here are dropped.
  void add_lane(LaneId lane, const Group& group, submit::TensorTable& table);
  void remove_lane(LaneId lane);
  // The process set is being removed: what was submitted until now is this rank's last word. Token's holder.
  void begin_removal(LaneId lane);

  // Moves everything that can move now; false if nothing did. Token's holder only.
  bool step(TimePoint now);
  [[nodiscard]] Deadline next_due() const;

  // From any thread; acted upon by the next step (wake the channel to have it soon).
  void request_flush() { flush_.store(true, std::memory_order_release); }  // of all lanes
  void request_flush(LaneId lane) EXCLUDES(posted_mutex_);
  // Runs under the token, in the next step.
  void post(std::function<void()> task) EXCLUDES(posted_mutex_);
  void request_leave() { leave_.store(true, std::memory_order_release); }
  void report_stuck(wire::Stuck stuck) EXCLUDES(posted_mutex_);
  void report_fault(wire::Abort abort) EXCLUDES(posted_mutex_);
  void post_timeline(wire::TimelineChunk chunk) EXCLUDES(posted_mutex_);  // to rank 0
  void post_timeline(wire::TimelineSwitch to) EXCLUDES(posted_mutex_);    // from rank 0, to all others
  void answer_state(int to, std::string text) EXCLUDES(posted_mutex_);    // what state_asked() asked for
  // Asks rank 0 for its clock, a few times; sink.clock_offset has the answer. Token's holder only.
  void measure_clock(TimePoint now);

  [[nodiscard]] const ControlCounters& counters() const { return counters_; }
  // Requests that are neither ordered nor failed, here or in this rank's coordinators. Token's holder only.
  [[nodiscard]] std::size_t outstanding() const;

 private:
  struct Lane {
    Group group;
    submit::TensorTable* table;
    negotiate::Participant participant;
    std::unique_ptr<negotiate::Coordinator> coordinator;  // on the group's first rank
    negotiate::OrderQueue orders;                         // there, too
    negotiate::CoordinatorWatch watch;
    negotiate::Watchdog watchdog;
    NeighbourWatch neighbour_watch{};
    bool closed = false;
    bool flush = false;  // asked for

    // For an order, or for others to answer a freeze.
    [[nodiscard]] bool waits() const { return participant.outstanding() > 0 || participant.frozen(); }
  };

  bool run_tasks() EXCLUDES(posted_mutex_);
  bool receive_all(TimePoint now);
  bool take_posted(TimePoint now);
  bool report_news(TimePoint now);
  // Whose messages the lane's orders wait for.
  [[nodiscard]] static int awaited_by(const Lane& lane) {
    return lane.coordinator ? 0 : lane.group.ranks.front();
  }
  void dispatch(int from, wire::Message message, TimePoint now);
  void on_report(int from, const wire::Report& report, TimePoint now);
  void on_order(const wire::Order& order);
  void begin_schedule(Lane& lane, LaneId id, std::uint64_t sequence, negotiate::Schedule schedule);
  void take_uses(Lane& lane);
  void on_pong(int from, const wire::Pong& pong);
  void on_lost(int from, const Status& why);
  void settle_all(LaneId id, std::vector<negotiate::Settled> settled);
  // Ends communication: tells the others (through rank 0), then the sink. First call only.
  void abort(const wire::Abort& cause, int heard_from);
  void send(int to, const wire::Message& message);
  [[nodiscard]] bool shares_open_lane(int rank) const;

  // negotiator_watch.cc
  void watch_coordinators(TimePoint now);
  void watch_neighbours(TimePoint now);
  void warn_of_the_late(negotiate::Coordinator& coordinator, TimePoint now);
  void ask_for_state(int rank, TimePoint now);
  void on_state(int from, const std::string& text);
  void give_up_asking(TimePoint now);
  void on_stuck(int from, const wire::Stuck& stuck, TimePoint now);
  bool check_watchdogs(TimePoint now);

  // negotiator_orders.cc
  bool give_orders(TimePoint now);
  void give(LaneId id, const Lane& lane, const wire::Order& order);
  void request_tickets(LaneId id, Lane& lane);
  void tell_ticket_members(LaneId id, const std::vector<int>& ranks);
  void dispatch_tickets(int from, const wire::Message& message);
  void on_ticket_members(int from, const wire::TicketMembers& members);
  void on_ticket_request(int from, const wire::TicketRequest& request);
  void on_ticket_grant(const wire::TicketGrant& grant);
  // Rank 0 leaves.
  void refuse_tickets();
  void end_tickets(int from);
  // Is this the coordinator of a set, other than the world, whose operations on GPUs may meet others there?
  [[nodiscard]] static bool shares_gpus(LaneId id, const Lane& lane) {
    return lane.coordinator && id.process_set != 0 && lane.group.size() > 1;
  }

  channel::Channel& channel_;
  const int rank_;
  const int size_;
  const negotiate::CoordinatorOptions options_;
  NegotiationSink& sink_;
  Neighbours neighbours_;
  std::map<LaneId, Lane> lanes_;
  negotiate::GpuOrder gpu_order_;  // rank 0's
  bool tickets_over_ = false;      // rank 0 leaves, or is gone
  std::vector<timeline::ClockSample> clock_samples_;
  std::map<int, Deadline> asked_;  // late ranks, until when they may say what they do
  bool aborted_ = false;
  std::vector<wire::Request> drained_;
  ControlCounters counters_;

  std::atomic<bool> flush_{false};
  std::atomic<bool> leave_{false};
  Mutex posted_mutex_;
  std::vector<std::function<void()>> tasks_ GUARDED_BY(posted_mutex_);
  std::vector<LaneId> flushes_ GUARDED_BY(posted_mutex_);
  std::deque<wire::Message> posted_
      GUARDED_BY(posted_mutex_);  // Stuck, Abort, TimelineChunk from other threads
};

}  // namespace roundelay::runtime
