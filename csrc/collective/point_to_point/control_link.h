#pragma once

#include <memory>

#include "base/status.h"
#include "collective/point_to_point/control.h"
#include "collective/program/transport.h"

namespace roundelay::collective {

// Carries control messages to and from one peer, one at a time each way. One thread at a time.
class ControlLink {
 public:
  // `transport` outlives it.
  ControlLink(Transport& transport, int peer);
  // If a transfer is on its way, keeps its memory for ever, because the medium may still use it.
  ~ControlLink();
  ControlLink(const ControlLink&) = delete;
  ControlLink& operator=(const ControlLink&) = delete;

  // Posts the receive of the next message. Call it first, and after each message but the last.
  Status expect();
  // Returns the message that has come; null: none. It is valid until expect().
  Result<const ControlMessage*> poll();

  // Returns the memory for the next message to send; null: the last one is on its way.
  Result<ControlMessage*> free_out();
  // Sends what is in that memory.
  Status send();

  // Returns whether a message is on its way to the peer, as far as free_out() has seen.
  [[nodiscard]] bool sending() const { return sending_; }
  [[nodiscard]] bool idle() const { return !receiving_ && !sending_; }

 private:
  struct Memory {
    ControlMessage in, out;
  };

  Transport& transport_;
  const int peer_;
  std::unique_ptr<Memory> memory_ = std::make_unique<Memory>();
  bool receiving_ = false, sending_ = false;
  TransferId in_ = 0, out_ = 0;
};

}  // namespace roundelay::collective
