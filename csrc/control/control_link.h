// Connects this rank with the others on the control plane: sends messages, counts them, and ends
// communication for all ranks after a fault. Only the holder of the negotiation token uses it, but for
// post().
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "channel/channel.h"
#include "control/lane_control.h"
#include "control/negotiation_sink.h"
#include "wire/messages.h"

namespace roundelay::control {

// Counts the control plane's work since init. Any thread may read the counters.
struct ControlCounters {
  std::atomic<std::int64_t> reports{0}, orders{0}, messages_sent{0}, message_bytes{0}, cached_requests{0},
      full_requests{0}, locks{0}, unlocks{0};
};

class ControlLink {
 public:
  // The references outlive the link. `size`: ranks in the world.
  ControlLink(channel::Channel& channel, int rank, int size, const LaneControls& lanes, NegotiationSink& sink)
      : channel_(channel), rank_(rank), size_(size), lanes_(lanes), sink_(sink) {}

  [[nodiscard]] int rank() const { return rank_; }

  // Sends the message to a world rank. Never blocks. Aborts if the message cannot be sent at all. A peer that
  // is gone is no error here: Channel::receive() reports it, with the reason.
  void send(int to, const wire::Message& message);
  // Sends as send() does, but drops what cannot be sent: receive() reports the loss of a peer. Any thread.
  void post(int to, const wire::Message& message);
  // Sends to each of these ranks but this one. Encodes the message once.
  void send_to_each(std::span<const int> ranks, const wire::Message& message);
  // Sends to all ranks of the world but this one.
  void send_to_others(const wire::Message& message);
  // Ends communication after a fault that this rank has found itself. Rank 0 decides which of several faults
  // all ranks raise, as ranks may find them at the same moment: another rank tells rank 0, and calls its sink
  // when rank 0 has answered, or in decide(). Later calls do nothing.
  void abort(const wire::Abort& fault);
  // Ends communication after a fault that the rank `from` has reported.
  void abort(const wire::Abort& fault, int from);
  // Raises this rank's own fault if rank 0 has not answered for kDecision. Returns true if it did.
  bool decide(TimePoint now);
  // Returns the time at which decide() is due.
  [[nodiscard]] Deadline next_due() const { return decision_due_; }
  // Returns true from the first abort() on: nothing new begins.
  [[nodiscard]] bool aborted() const { return ended_ || proposed_; }

  // Returns the counters. The link counts messages; the negotiator counts the rest here.
  ControlCounters& counters() { return counters_; }
  [[nodiscard]] const ControlCounters& counters() const { return counters_; }

  // A message to rank 0 and back takes milliseconds. A rank 0 that is stopped must not keep the others for
  // long.
  static constexpr Duration kDecision = std::chrono::seconds(1);

 private:
  void send_bytes(int to, ConstByteSpan message);
  Status count_and_send(int to, ConstByteSpan message);
  void end(const wire::Abort& fault);
  // Returns true if rank 0 decides on this rank's faults and tells the other ranks.
  [[nodiscard]] bool through_rank_0() const { return rank_ != 0 && lanes_.shares_open_lane(0); }

  channel::Channel& channel_;
  const int rank_;
  const int size_;
  const LaneControls& lanes_;
  NegotiationSink& sink_;
  std::optional<wire::Abort> proposed_;  // the first fault that this rank has found
  Deadline decision_due_ = Deadline::never();
  bool ended_ = false;  // the sink knows the cause
  ControlCounters counters_;
};

}  // namespace roundelay::control
