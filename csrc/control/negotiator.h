// The control plane of one process as a step function: reports the new requests of the tensor tables,
// coordinates, and gives a NegotiationSink the operations to execute. It joins the folders submit, negotiate
// and channel.
//
// Only the holder of the negotiation token may call it, except for inbox() and counters(). No function
// blocks. The simulation drives many negotiators in one thread, with a fake clock.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "channel/channel.h"
#include "control/clock_probe.h"
#include "control/control_inbox.h"
#include "control/control_link.h"
#include "control/lane_control.h"
#include "control/negotiation_sink.h"
#include "control/relay_control.h"
#include "control/report_control.h"
#include "control/stall_watch.h"
#include "control/ticket_control.h"
#include "negotiate/coordinator.h"
#include "submit/table.h"
#include "wire/messages.h"

namespace roundelay::control {

class Negotiator {
 public:
  // `channel` and `sink` outlive the negotiator. `size`: ranks in the world.
  Negotiator(channel::Channel& channel, int rank, int size, const negotiate::CoordinatorOptions& options,
             NegotiationSink& sink);

  // Sets the node of each rank, any numbers. Call it before the first add_lane(). Without it no lane has
  // leaders (negotiate/report_tree.h).
  void set_nodes(std::vector<int> nodes) { nodes_ = std::move(nodes); }
  // Adds a lane whose id is new. `table` outlives it. Messages for a lane that was not added are dropped.
  void add_lane(LaneId id, const Group& group, submit::TensorTable& table);
  // Forgets the lane. Does nothing if it was not added.
  void remove_lane(LaneId id);
  // Tells the lane's coordinator that this rank removes the process set: the next report for the lane is this
  // rank's last one.
  void begin_removal(LaneId id);

  // Does everything that can be done at `now`. Returns false if there was nothing to do.
  bool step(TimePoint now);
  // Returns the time at which a step is due even if no message comes and nothing is submitted.
  [[nodiscard]] Deadline next_due() const;

  // Sets the ranks of this node whose processes this rank can see. Call it before the first step.
  void set_neighbours(Neighbours neighbours) { stall_watch_.set_neighbours(std::move(neighbours)); }
  // Starts to measure rank 0's clock; NegotiationSink::clock_offset() gets the result. Call it when the
  // world's lane, LaneId{}, was added.
  void measure_clock(TimePoint now);

  // Any thread may use the inbox and the counters.
  ControlInbox& inbox() { return inbox_; }
  [[nodiscard]] const ControlCounters& counters() const { return link_.counters(); }

  // Returns LaneControls::outstanding().
  [[nodiscard]] std::size_t outstanding() const { return lanes_.outstanding(); }

 private:
  // Each returns true if it did something.
  bool receive_all(TimePoint now);
  bool take_inbox(TimePoint now);
  bool send_reports(TimePoint now);

  void dispatch(int from, wire::Message message, TimePoint now);
  void act_on(ControlInbox::Message message, TimePoint now);
  void on_chunk(wire::TimelineChunk chunk);
  void on_reply(const StateReply& reply);
  void on_lost(int from, const Status& why);

  bool hand_over_orders(TimePoint now);
  void hand_over(LaneId id, const LaneControl& lane, const wire::Order& order);
  void on_order(const wire::Order& order);
  bool apply_waiting(TimePoint now);
  void apply(LaneId id, LaneControl& lane, const wire::Order& order);
  void close(LaneId id, LaneControl& lane, const negotiate::Applied& applied);
  void begin_schedule(LaneId id, LaneControl& lane, std::uint64_t sequence, negotiate::Schedule schedule);
  void fail_submissions(LaneId id, std::vector<negotiate::FailedSubmission> failed);

  channel::Channel& channel_;
  const int rank_;
  const negotiate::CoordinatorOptions options_;
  NegotiationSink& sink_;
  std::vector<int> nodes_;  // by rank; empty: not known
  LaneControls lanes_;
  ControlLink link_;
  ControlInbox inbox_;
  TicketControl tickets_;
  RelayControl relays_;
  ReportControl reports_;
  StallWatch stall_watch_;
  ClockProbe clock_probe_;
  Deadline waiting_due_ = Deadline::never();  // when to look again whether orders that wait may be applied
  std::vector<wire::Submission> drained_;     // reused
};

}  // namespace roundelay::control
