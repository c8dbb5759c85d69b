// The control plane: a process's mailbox. Small messages between any two ranks, in order and exactly once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"

namespace roundelay::channel {

struct Incoming {
  int from = -1;  // world rank
  Bytes bytes;
  // Not ok: the connection to `from` is gone for good, and it did not say goodbye (bytes is empty; reported
  // once a peer).
  Status lost;
};

// Threads: send, wait and wake from any thread. receive and close by one thread at a time (the holder of the
// negotiation token). Messages to oneself loop back.
class Channel {
 public:
  virtual ~Channel() = default;

  // Never blocks: what the medium does not take at once is queued and goes out from later calls.
  // Errors: kAborted when `to` is known to be lost. What is for a peer that said goodbye is dropped.
  virtual Status send(int to, ConstByteSpan message) = 0;

  // The next message or loss, if there is one now; also moves queued output.
  virtual std::optional<Incoming> receive() = 0;

  // Sleeps until receive() may have something, wake() is called, or the deadline. May return early.
  // Sleepers use no CPU unless the medium has no other way (channel/mpi documents its back-off).
  virtual void wait(Deadline deadline) = 0;
  // From true to false the caller, one thread at a time, does nothing but look for messages: where the medium
  // is quicker for it, peers wake nobody meanwhile, and it waits by wait_polling(), which polls for a while
  // before it sleeps.
  virtual void set_polling(bool /*polling*/) {}
  virtual void wait_polling(Deadline deadline, Duration /*polling*/) { wait(deadline); }

  // Ends all waits in progress and the next one that starts before a receive().
  virtual void wake() = 0;

  // Sends what is queued and a goodbye (until the deadline), then closes: to its peers this rank has left in
  // order, and they see no loss. They do see one if the channel is destroyed without it.
  virtual void close(Deadline deadline) = 0;

  // Messages without content that only wake a peer's sleeper, so far.
  [[nodiscard]] virtual std::int64_t wakeups_sent() const { return 0; }

  // False if only the thread that made the channel may call anything but wake() and send().
  [[nodiscard]] virtual bool any_thread() const { return true; }
};

}  // namespace roundelay::channel
