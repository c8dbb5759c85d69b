// Carries reports to the coordinators of lanes, through leaders where there are some
// (negotiate/report_tree.h). Only the holder of the negotiation token uses it.
#pragma once

#include "control/control_link.h"
#include "control/lane_control.h"
#include "wire/messages.h"

namespace roundelay::control {

class ReportControl {
 public:
  // The references outlive this object.
  ReportControl(ControlLink& link, LaneControls& lanes) : link_(link), lanes_(lanes) {}

  // Sends a report of this rank's own.
  void send(LaneControl& lane, wire::Report report, TimePoint now);
  // Take messages of ranks below this one. A message that breaks the protocol ends communication.
  void on_report(int from, const wire::Report& report, TimePoint now);
  void on_reports(int from, wire::Reports reports, TimePoint now);
  // Sends what this rank, as a leader, has merged. Returns true if there was anything.
  bool send_merged(TimePoint now);
  // Returns the time at which send_merged() is due without a message.
  [[nodiscard]] Deadline next_due() const;

 private:
  void take(LaneControl& lane, int member, wire::MemberReport said, TimePoint now);
  void send_up(const LaneControl& lane, std::vector<wire::MemberReport> reports);

  ControlLink& link_;
  LaneControls& lanes_;
};

}  // namespace roundelay::control
