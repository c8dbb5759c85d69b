// Send and receive between the members of one group. The algorithms of collective/algorithms/ use it.
#pragma once

#include <cstdint>

#include "base/backoff.h"
#include "base/bytes.h"
#include "base/status.h"
#include "collective/call_mark.h"

namespace roundelay::collective {

// Names a send or receive in progress. The number is used again after test() said true.
using TransferId = std::uint32_t;

// One thread at a time. Peers are indices in the group. Messages between two members match by tag, in the
// order of posting. Both sides give the same size, which may be any: implementations cut messages at the
// medium's limit (MPI: below 2^31 bytes). Errors: kAborted (the medium or the connection failed).
class Transport {
 public:
  virtual ~Transport() = default;
  [[nodiscard]] virtual int index() const = 0;  // this member's index in the group
  [[nodiscard]] virtual int size() const = 0;

  // Start a transfer. The memory must stay valid, and for sends unchanged, until test() says true.
  virtual Result<TransferId> send(int peer, ConstByteSpan data, int tag) = 0;
  virtual Result<TransferId> receive(int peer, ByteSpan data, int tag) = 0;
  // Returns true once the transfer is done; the id is then free. Never blocks.
  virtual Result<bool> test(TransferId id) = 0;
  // Sets the mark of the messages that are posted from now on. A medium that carries marks fails a message
  // that meets one of the same tag with another mark, with kMismatch.
  virtual void set_mark(const CallMark& /*mark*/) {}
  // Returns whether a transfer that is not done waits for the peer or the medium. False: for this member's
  // own device.
  [[nodiscard]] virtual bool waits_for_peer(TransferId /*id*/) { return true; }
  // Returns the pause before the next test(), after one that said false.
  [[nodiscard]] virtual Nap nap(Backoff& backoff) { return backoff.next(); }
  // Ends a nap that may be long, also one that nap() has returned and that has not begun. Any thread.
  virtual void wake() {}
};

}  // namespace roundelay::collective
