#pragma once

#include <cstddef>
#include <deque>

#include "base/bytes.h"
#include "base/status.h"
#include "collective/point_to_point/control_link.h"
#include "collective/point_to_point/matcher.h"
#include "collective/point_to_point/messages.h"
#include "collective/program/transport.h"

namespace roundelay::collective {

// The protocol with one peer. A send is offered, with its bytes if it is small. When a receive has matched
// it, the receiver answers; then the bytes that were not in the offer move between the two users' memories.
//
// One thread at a time.
class PeerLink {
 public:
  // The most bytes in offers that have no answer. They may wait for a receive on the other side.
  static constexpr std::size_t kMostPayloads = std::size_t{64} << 10U;
  // The most messages that move here from the peer at once. The others wait in the peer's users' memory.
  static constexpr std::size_t kMostMoving = 8;

  // All arguments outlive it.
  PeerLink(Transport& transport, int peer, Messages& messages, Matcher& matcher);

  // Makes it ready. Call it first.
  Status open() { return control_.expect(); }
  // Sends a message, in the order of the calls.
  void offer(MessageId send) { to_offer_.push_back(send); }
  // Gives an offer of this peer to the receive that it matches. `payload` is the message that has come with
  // it.
  void match(MessageId receive, const Offer& offer, ConstByteSpan payload);
  // Tells the peer that nothing more will be offered.
  void leave() { leaving_ = true; }

  // Moves on what can move. Returns whether something did. Errors: those of the transport before the peer has
  // left, and kInternal if the peer does not follow the protocol.
  Result<bool> progress();
  // Ends the link: the peer cannot be reached. The caller ends its messages.
  void lose(const Status& error);
  // Returns whether the peer has yet to get something from here that does not wait for it.
  [[nodiscard]] bool has_unsent() const {
    return !gone_ && (!to_answer_.empty() || !to_offer_.empty() || control_.sending());
  }
  // Returns the error of lose(); ok: it was not called.
  [[nodiscard]] const Status& lost() const { return lost_; }
  // Returns whether the peer's goodbye has come, or never will.
  [[nodiscard]] bool left() const { return left_; }
  // Returns whether both sides have left, and no transfer is on its way.
  [[nodiscard]] bool closed() const { return left_ && (gone_ || (told_ && control_.idle())); }

 private:
  Status step();
  Status hear();
  Status take_control(const ControlMessage& control);
  Status take_offer(const ControlMessage& control);
  Status take_answer(const Answer& answer);
  Status start_receives();
  Status test_moving(std::deque<MessageId>& moving);
  Status speak();
  // Writes the next control message. Returns whether there is one.
  [[nodiscard]] bool write(ControlMessage& control);
  void write_answers(ControlMessage& control);
  void write_offer(ControlMessage& control);
  // Returns the error for a control message that makes no sense.
  [[nodiscard]] Status broken() const;

  Transport& transport_;
  const int peer_;
  Messages& messages_;
  Matcher& matcher_;
  ControlLink control_;
  std::deque<MessageId> to_offer_;
  std::deque<Answer> to_answer_;
  std::deque<MessageId> matched_;  // receives that wait until fewer move
  std::deque<MessageId> moving_out_, moving_in_;
  std::size_t payloads_ = 0;             // bytes that were sent in offers and have no answer
  bool leaving_ = false, told_ = false;  // this member will say goodbye, has said it
  bool left_ = false, gone_ = false;     // the peer has said it, cannot be reached any more
  bool moved_ = false;
  Status lost_;
};

}  // namespace roundelay::collective
