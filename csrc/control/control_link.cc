#include "control/control_link.h"

#include <string>
#include <utility>

#include "wire/codec.h"

namespace roundelay::control {

void ControlLink::send(int to, const wire::Message& message) { send_bytes(to, wire::encode(message)); }

void ControlLink::post(int to, const wire::Message& message) {
  static_cast<void>(count_and_send(to, wire::encode(message)));
}

Status ControlLink::count_and_send(int to, ConstByteSpan message) {
  ++counters_.messages_sent;
  counters_.message_bytes += static_cast<std::int64_t>(message.size());
  return channel_.send(to, message);
}

void ControlLink::send_bytes(int to, ConstByteSpan message) {
  const Status sent = count_and_send(to, message);
  if (sent.code() == StatusCode::kInvalidArgument) {
    abort({rank_, "rank " + std::to_string(rank_) + " cannot send a control message: " + sent.message()});
  }
}

void ControlLink::send_to_each(std::span<const int> ranks, const wire::Message& message) {
  const Bytes bytes = wire::encode(message);
  for (const int rank : ranks) {
    if (rank != rank_) send_bytes(rank, bytes);
  }
}

void ControlLink::send_to_others(const wire::Message& message) {
  const Bytes bytes = wire::encode(message);
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_) send_bytes(rank, bytes);
  }
}

void ControlLink::abort(const wire::Abort& fault) {
  if (ended_) return;
  const bool first = !proposed_;
  if (first) proposed_ = fault;  // before the message: one that cannot travel leads here again
  if (!through_rank_0()) return end(*proposed_);
  if (first) send(0, fault);
  // A rank 0 that is to blame may not answer; if it lives, it tells the others.
  if (fault.culprit == 0) end(*proposed_);
}

void ControlLink::abort(const wire::Abort& fault, int from) {
  if (ended_) return;
  if (from == 0 || rank_ == 0) return end(fault);
  abort(fault);
}

bool ControlLink::decide(TimePoint now) {
  if (!proposed_ || ended_) return false;
  if (decision_due_ == Deadline::never()) decision_due_ = Deadline::at(now + kDecision);
  if (!decision_due_.passed(now)) return false;
  end(*proposed_);
  return true;
}

// Rank 0 tells each rank once; a rank that cannot reach it finds the fault by itself. When rank 0 has left,
// the ranks of a smaller set tell each other. The culprit gets the message too: a stopped process reads it
// when it goes on.
void ControlLink::end(const wire::Abort& fault) {
  if (std::exchange(ended_, true)) return;
  decision_due_ = Deadline::never();
  for (int rank = 0; rank < size_ && !through_rank_0(); ++rank) {
    if (rank != rank_ && lanes_.shares_open_lane(rank)) send(rank, fault);
  }
  sink_.abort(fault.mismatch ? Status::mismatch(fault.text) : Status::aborted(fault.text));
}

}  // namespace roundelay::control
