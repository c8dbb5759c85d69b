#include "runtime/control/control_link.h"

#include <string>
#include <utility>

#include "wire/codec.h"

namespace roundelay::runtime {

void ControlLink::send(int to, const wire::Message& message) { send_bytes(to, wire::encode(message)); }

void ControlLink::send_bytes(int to, ConstByteSpan message) {
  ++counters_.messages_sent;
  counters_.message_bytes += static_cast<std::int64_t>(message.size());
  const Status sent = channel_.send(to, message);
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

void ControlLink::abort(const wire::Abort& cause, int heard_from) {
  if (std::exchange(aborted_, true)) return;
  // The message goes through rank 0, so that every rank gets it once. A rank that cannot reach rank 0 finds
  // the fault by itself. When rank 0 has left, the ranks of a smaller set tell each other.
  const bool through_rank_0 = rank_ != 0 && lanes_.shares_open_lane(0);
  for (int rank = 0; rank < size_; ++rank) {
    // The culprit gets the message too: a stopped process reads it when it goes on.
    const bool tell =
        rank != rank_ && rank != heard_from && (through_rank_0 ? rank == 0 : lanes_.shares_open_lane(rank));
    if (tell) send(rank, cause);
  }
  sink_.abort(Status::aborted(cause.text));
}

}  // namespace roundelay::runtime
