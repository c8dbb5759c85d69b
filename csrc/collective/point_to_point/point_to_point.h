// Messages between two members of a group: send, receive, and receive from any. They go over a transport of
// their own, so that they neither wait for collectives nor take part in their order.
//
// - Messages of one pair and tag match receives in the order of posting. A receive from any takes the message
//   of its tag that arrived first. (matcher.h)
// - Any number may be in flight. A send is over when the peer's receive has the bytes, as with Gloo and NCCL
//   and not as with MPI_Send: a member that waits for each of its sends before it posts a receive may
//   deadlock with one that does the same.
// - Memory is bounded. A small message comes with its offer, until PeerLink::kMostPayloads bytes of one peer
//   wait for a receive; all others stay in the sender's memory until a receive has matched them. Of each
//   message that waits, either side keeps some 100 bytes, in proportion to what users have posted.
// - Both sides name the same size. If they do not, both get an error that names both, and the group goes on.
//   (Gloo accepts a message that is too small, and leaves the rest of the memory as it was.)
// - A message cannot be cancelled: the peer may have matched it already. give_up() ends all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/backoff.h"
#include "base/bytes.h"
#include "base/group.h"
#include "base/status.h"
#include "collective/point_to_point/matcher.h"
#include "collective/point_to_point/messages.h"
#include "collective/point_to_point/peer_link.h"
#include "collective/program/transport.h"

namespace roundelay::collective {

// One thread at a time. Nothing blocks. Peers are indices in the group. The caller owns a message's memory:
// it neither frees nor writes it, nor reads that of a receive, until the message is over.
class PointToPoint {
 public:
  // `transport` connects the group. It is for this object alone.
  PointToPoint(std::unique_ptr<Transport> transport, Group group);
  // Without leave(), peers may see this member as lost. The medium may then still write to the memory of
  // receives that are not over, so that the caller must leak it.
  ~PointToPoint();
  PointToPoint(const PointToPoint&) = delete;
  PointToPoint& operator=(const PointToPoint&) = delete;

  // Post a message. Any bytes, none included. Errors: kInvalidArgument (no such peer, or this member),
  // kAborted (the peer has left, or cannot be reached; the first cause after give_up()).
  Result<MessageId> send(int peer, ConstByteSpan data, MessageTag tag);
  Result<MessageId> receive(int peer, ByteSpan memory, MessageTag tag);
  Result<MessageId> receive_any(ByteSpan memory, MessageTag tag);

  // Moves all messages on.
  void progress();
  // Returns the peer if the message is over, nothing if it is not. Does not call progress(). Errors:
  // kMismatch (the sizes differ), kAborted (the peer has left); the message is over then, and the others go
  // on. kAborted with the cause if the connection to the peer has failed, which ends the messages with that
  // peer alone. The first cause after give_up(); see there. When a message is over, the first call that says
  // so frees the id.
  Result<std::optional<int>> look(MessageId id);
  // Does both.
  Result<std::optional<int>> test(MessageId id) {
    progress();
    return look(id);
  }
  // Returns the peer of a message that is not over; -1: any.
  [[nodiscard]] int waiting_for(MessageId id) { return messages_[id].peer; }
  // Returns whether a peer has yet to get something from here: perhaps the answer to a message of its own,
  // which it waits for although all messages are over here. progress() sends it. False after give_up().
  [[nodiscard]] bool has_unsent() const;
  // Returns the pause before the next progress(), if no message is over that the caller waits for.
  Nap idle(Backoff& backoff);
  // Ends that pause. Any thread.
  void wake() { transport_->wake(); }

  // Fails all messages that are not over, and all later ones, with `cause`, unless that has happened already.
  // The medium may still use their memory, so that the caller must leak it.
  void give_up(const Status& cause);
  // Tells the peers that this member posts nothing more, so that they do not see it as lost. True: all have
  // told the same, and no transfer is on its way. Call it until then, or for as long as there is time.
  // Errors: kInvalidArgument (messages are not over), the first cause.
  Result<bool> leave();

  // Returns the bytes of messages that have come and wait for a receive.
  [[nodiscard]] std::size_t payload_bytes() const { return matcher_.payload_bytes(); }

 private:
  [[nodiscard]] Status usable() const;
  Status check(int peer);
  MessageId post_receive(int peer, ByteSpan memory, MessageTag tag);
  void lose(int peer, const Status& error);
  void end_messages_of(int peer);
  [[nodiscard]] bool all_left() const;
  std::unique_ptr<PeerLink>& link(int peer) { return links_[static_cast<std::size_t>(peer)]; }

  const std::unique_ptr<Transport> transport_;
  Messages messages_;
  Matcher matcher_;
  std::vector<std::unique_ptr<PeerLink>> links_;  // null for this member itself
  bool moved_ = false;                            // something has moved since the last idle()
  bool leaving_ = false;
  Status poison_;  // the first cause; ok while the transport works
};

}  // namespace roundelay::collective
