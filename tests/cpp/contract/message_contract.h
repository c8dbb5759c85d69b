// The tests that PointToPoint must pass over every transport. A MessageMedium makes the members and runs one
// function for each: with threads, with processes, or with the ranks of MPI.
//
// A member's function returns an error text, "" if there is none, because Catch's macros are not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collective/point_to_point/point_to_point.h"

namespace roundelay::contract {

using collective::MessageId;
using collective::MessageTag;
using collective::PointToPoint;
using collective::Transport;

struct Member {
  PointToPoint& messages;
  int index;
  int size;
};
using MemberPart = std::function<std::string(Member& member)>;

class MessageMedium {
 public:
  virtual ~MessageMedium() = default;
  [[nodiscard]] virtual int largest_group() const = 0;
  // Runs `part` on the first `size` members. Returns the first error with the member's number, "" if there is
  // none.
  virtual std::string run(int size, const MemberPart& part) = 0;
};

struct MessageTest {
  std::string name;
  MemberPart part;
};
const std::vector<MessageTest>& message_contract();

// Returns a group whose ranks differ from its indices.
Group message_group(int size, int index);
// Runs `part` over this transport, and leaves. Returns the error.
std::string run_member(std::unique_ptr<Transport> transport, const Group& group, const MemberPart& part);
// Runs `part` over each of the transports in a thread of its own.
std::string run_members_on_threads(std::vector<std::unique_ptr<Transport>> transports,
                                   const MemberPart& part);

// Building blocks, also for tests of one medium.
// Returns bytes that depend on all arguments and on the position.
Bytes stamped(std::size_t bytes, int from, int to, MessageTag tag, unsigned number);
// Waits until the message is over. Returns the peer. Errors: those of the message, and kAborted after a time
// that only a hanging test reaches.
Result<int> wait_for(PointToPoint& messages, MessageId id);
// Waits until a transfer of a transport is over.
Status wait_for(Transport& transport, collective::TransferId id);

}  // namespace roundelay::contract
