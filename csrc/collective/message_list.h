// Messages between the members of a group, of any number and size, in any place of their owners' memory.
#pragma once

#include <cstddef>
#include <vector>

#include "base/bytes.h"

namespace roundelay::collective {

// One member's messages. Those from one member to another match in the order in which both list them, and
// have the same sizes on both sides. None is empty.
struct MessageList {
  struct Sent {
    int to;  // an index in the group, not this member's own
    ConstByteSpan data;
  };
  struct Received {
    int from;
    ByteSpan data;
  };

  std::vector<Sent> sent;
  std::vector<Received> received;
  std::size_t most_bytes = 0;  // a bound for the bytes of a message between any two members, the same on all
};

}  // namespace roundelay::collective
