// The messages of one member that users have posted, and what became of them. Pure: no I/O, no threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/group.h"
#include "base/status.h"
#include "collective/engine/slots.h"
#include "collective/point_to_point/matcher.h"
#include "collective/program/transport.h"

namespace roundelay::collective {

struct Message {
  enum class State : unsigned char {
    kFree,
    kPosted,
    kOffered,  // a send: the peer knows of it
    kMoving,   // matched, and its bytes are on their way
    kOver,
  };
  State state = State::kFree;
  bool sends = false;
  bool with_payload = false;  // a send: its bytes are in its offer
  int peer = kAnyPeer;        // of a receive from any: kAnyPeer until it is matched
  MessageTag tag = 0;
  ByteSpan memory{};        // of a send: only read
  MessageId theirs = 0;     // of a receive that is matched: the sender's number
  TransferId transfer = 0;  // while it moves
  Status error{};
};

// One thread at a time.
class Messages {
 public:
  explicit Messages(Group group) : group_(std::move(group)) {}

  MessageId add(bool sends, int peer, ByteSpan memory, MessageTag tag);
  [[nodiscard]] Message& operator[](MessageId id) { return slots_[id]; }
  // Returns the send that this peer has been offered under this number; null: there is none.
  [[nodiscard]] Message* offered(int peer, MessageId id);
  // Ends a message, well or with an error of its own.
  void finish(MessageId id, Status error = {});
  // Ends all messages with this peer that are not over.
  void finish_all(int peer, const Status& error);
  // Ends all sends to this peer that do not move.
  void finish_sends(int peer, const Status& error);
  // Returns the peer if the message is over, and frees its number. Nothing: it is not.
  Result<std::optional<int>> take(MessageId id);
  // Returns the number of messages that are not over.
  [[nodiscard]] std::size_t open() const { return open_; }

  [[nodiscard]] const Group& group() const { return group_; }
  // Errors of messages. `from`, `to` and `peer` are indices in the group.
  [[nodiscard]] Status mismatch(int from, int to, MessageTag tag, std::uint64_t sent,
                                std::uint64_t wanted) const;
  [[nodiscard]] Status has_left(int peer) const;

 private:
  const Group group_;
  Slots<Message> slots_;
  MessageId count_ = 0;  // of slots
  std::size_t open_ = 0;
};

}  // namespace roundelay::collective
