// Finds out why nothing moves: which coordinator is silent, which process of this node is stopped, what a
// late rank does, and which rank is to blame when an operation is stuck.
//
// Only the holder of the negotiation token uses it. negotiate/coordinator_watch.h and negotiate/watchdog.h
// decide; this class sends the questions, logs the warnings and aborts.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "control/control_link.h"
#include "control/lane_control.h"
#include "control/negotiation_sink.h"
#include "control/neighbours.h"
#include "negotiate/coordinator.h"
#include "wire/messages.h"

namespace roundelay::control {

class StallWatch {
 public:
  // `warns`: false if the user has turned stall warnings off. The references outlive the watch.
  StallWatch(ControlLink& link, LaneControls& lanes, NegotiationSink& sink, bool warns)
      : link_(link), lanes_(lanes), sink_(sink), warns_(warns) {}

  // Sets the ranks of this node whose processes this rank can see. Call it before the first step.
  void set_neighbours(Neighbours neighbours) { neighbours_ = std::move(neighbours); }

  // Call it when a message, of any kind, has come from the rank.
  void on_heard(int from, TimePoint now);
  // Logs the answer of a late rank that was asked what its program does.
  void on_state(int from, const std::string& text);
  // Call it when a rank, possibly this one, is stuck in an operation.
  void on_stuck(int from, const wire::Stuck& stuck, TimePoint now);
  // Call it when a rank has answered a ping.
  void on_sign_of_life(int from);

  // Logs the coordinator's stall warnings that are due, and asks the late ranks what they do.
  void warn_of_late_ranks(negotiate::Coordinator& coordinator, TimePoint now);
  // Does what is due at `now`: pings, warns or aborts. Returns true if it blamed a rank for a stuck
  // operation.
  bool check(TimePoint now);
  // Returns the time at which check() is due even if no message comes.
  [[nodiscard]] Deadline next_due() const;

 private:
  void check_coordinators(TimePoint now);
  void on_silent_coordinator(const LaneControl& lane, bool fatal, TimePoint now);
  void check_neighbours(TimePoint now);
  void ask_about(int rank, TimePoint now);
  void give_up_asking(TimePoint now);
  bool take_faults(TimePoint now);

  ControlLink& link_;
  LaneControls& lanes_;
  NegotiationSink& sink_;
  const bool warns_;
  Neighbours neighbours_;
  std::map<int, Deadline> asked_;  // late ranks that have not answered, and how long they may take
};

}  // namespace roundelay::control
