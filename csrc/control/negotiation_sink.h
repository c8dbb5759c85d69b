// The interface through which the control plane tells the data plane what it has decided.
#pragma once

#include <cstdint>

#include "base/group.h"
#include "base/status.h"
#include "negotiate/coordinator.h"
#include "negotiate/participant.h"
#include "wire/messages.h"

namespace roundelay::control {

// The holder of the negotiation token calls these functions, in the order of the decisions. None may block.
class NegotiationSink {
 public:
  virtual ~NegotiationSink() = default;

  // Records that the order `sequence` of the lane has come. The calls for its contents follow.
  virtual void ordered(LaneId lane, std::uint64_t sequence) = 0;
  // Queues an operation of the order `sequence` on the lane.
  virtual void execute(LaneId lane, std::uint64_t sequence, negotiate::OrderedOperation ordered) = 0;
  // Completes a submission that has failed and gets no operation.
  virtual void fail_submission(LaneId lane, negotiate::FailedSubmission failed) = 0;
  // Switches the lane to the schedule lock that the order `sequence` has begun in its table. Operations of
  // this and earlier orders come first.
  virtual void locked(LaneId lane, std::uint64_t sequence) = 0;
  // Ends the lane's schedule lock: executes the positions before `from` that are left, then ends the schedule
  // of the lane's table.
  virtual void unlock(LaneId lane, std::uint64_t from) = 0;
  // Completes this rank's join. All that was ordered before the join is already executed or queued.
  virtual void joined(LaneId lane, const wire::Joined& joined) = 0;
  // Closes the lane: all its members have removed the process set, and it gets no more orders.
  virtual void removed(LaneId lane) = 0;
  // Closes the lane: the world rank `by_rank`, possibly this one, has left, and the lane gets no more orders.
  virtual void rank_left(LaneId lane, int by_rank) = 0;
  // Ends communication because of `cause`. It is called at most once; execute() and fail_submission() are not
  // called afterwards.
  virtual void abort(const Status& cause) = 0;
  // Records that all members have reported a tensor. Called on the lane's coordinator.
  virtual void ready(LaneId lane, const negotiate::ReadyNote& note) = 0;
  // Sets the clocks' offset: rank 0's clock is this rank's clock plus `nanoseconds`. Never called on rank 0.
  virtual void clock_offset(std::int64_t nanoseconds) = 0;
  // Takes a piece of a rank's timeline. Called on rank 0.
  virtual void timeline_chunk(wire::TimelineChunk chunk) = 0;
  // Starts or stops this rank's timeline, as rank 0 has said. Never called on rank 0.
  virtual void timeline_switch(wire::TimelineSwitch to) = 0;
  // Takes the question of a coordinator, possibly this rank's, what this rank's program does. The answer goes
  // to ControlInbox as a StateReply.
  virtual void state_asked(int by_rank) = 0;
};

}  // namespace roundelay::control
