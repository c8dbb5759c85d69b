// The control plane: carries small messages between any two ranks, in order and exactly once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"

namespace roundelay::channel {

// A received message, or the loss of a peer.
struct Incoming {
  int from = -1;  // world rank
  Bytes bytes;
  // An error if the connection to `from` is lost forever and `from` did not say goodbye. `bytes` is then
  // empty. Each peer's loss is reported once.
  Status lost;
};

// Any thread may call send(), wait() and wake(). One thread at a time calls receive() and close(): the holder
// of the negotiation's token (execute/progress_token.h). A rank may send messages to itself.
class Channel {
 public:
  virtual ~Channel() = default;

  // Sends a message. Never blocks: a message that the medium does not take at once is queued, and later calls
  // send it. Drops messages to a peer that said goodbye. Errors: kAborted (`to` is lost, or MPI failed),
  // kInvalidArgument (over kLongestFrame, frames.h), kUnavailable (after close()).
  virtual Status send(int to, ConstByteSpan message) = 0;

  // Returns the next message or loss; nothing if there is none now. Also sends queued output.
  virtual std::optional<Incoming> receive() = 0;

  // Sleeps until receive() may have something, wake() is called, or the deadline passes. May return early.
  // Uses no CPU unless the medium cannot sleep (channel/mpi documents its back-off).
  virtual void wait(Deadline deadline) = 0;
  // Tells the channel that the caller looks for messages whenever it does not sleep in wait_polling(): from
  // set_polling(true) to set_polling(false). Meanwhile messages and wake() end its sleep, and need not end
  // those of other threads, which have nothing to do: they see at the end what is left. Some media also save
  // the messages that wake a sleeper. One thread at a time calls these two.
  virtual void set_polling(bool /*polling*/) {}
  // Polls for the time `polling` before it sleeps as wait() does.
  virtual void wait_polling(Deadline deadline, Duration /*polling*/) { wait(deadline); }

  // Ends all waits in progress, and also the next wait unless receive() comes before it.
  virtual void wake() = 0;

  // Sends all queued messages and a goodbye, until the deadline, then closes the channel. Its peers see that
  // this rank has left in order. If the channel is destroyed without close(), they see a loss.
  virtual void close(Deadline deadline) = 0;

  // Returns how many empty messages this channel has sent only to wake a sleeping peer.
  [[nodiscard]] virtual std::int64_t wakeups_sent() const { return 0; }

  // Returns whether any thread may call the channel. If not, threads other than the one that made it may call
  // only wake() and send().
  [[nodiscard]] virtual bool any_thread() const { return true; }
};

}  // namespace roundelay::channel
