// Send and receive between members of one group: what the algorithms of collective/algorithms/ are written
// over.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"

namespace roundelay::collective {

// A send or receive in progress; slots are reused after test() said true.
using Ticket = std::uint32_t;

// One thread at a time. Messages between two members match by tag, in the order of posting; sizes on both
// sides are equal. Any size: implementations cut messages at the medium's limit (MPI: below 2^31 bytes).
class Transport {
 public:
  virtual ~Transport() = default;
  [[nodiscard]] virtual int index() const = 0;  // this process's position in the group
  [[nodiscard]] virtual int size() const = 0;

  // The memory must stay valid and (for sends) unchanged until test() says true.
  virtual Result<Ticket> send(int peer, ConstByteSpan data, int tag) = 0;
  virtual Result<Ticket> receive(int peer, ByteSpan data, int tag) = 0;
  // True once: the transfer is done and the ticket is free. Never blocks.
  virtual Result<bool> test(Ticket ticket) = 0;
};

}  // namespace roundelay::collective
