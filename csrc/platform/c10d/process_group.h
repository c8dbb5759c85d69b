// A torch.distributed process group that Roundelay makes for itself: messages between its members. This
// header needs no header of PyTorch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"

namespace roundelay::platform {

// One message in transit.
class GroupWork {
 public:
  virtual ~GroupWork() = default;
  // Blocks until the message is sent or received. Errors: kAborted with Gloo's text (the peer is gone, or
  // abort() was called).
  virtual Status wait() = 0;
  // Ends a wait() of another thread: wait() itself has no deadline. Gloo may still use the message's memory
  // afterwards.
  virtual void abort() = 0;
};

// The place of this process in a group, and the TCPStore where the members meet.
struct GroupPlace {
  std::string store_host;
  std::uint16_t store_port = 0;
  std::string prefix;  // the group's keys in the store begin with it
  // Network interfaces, comma separated; Gloo uses the first one. "": the loopback if `store_host` is one,
  // otherwise PyTorch chooses.
  std::string interface;
  std::string own_address;  // this host's address that Gloo uses, in place of `interface`; "": none
  int index = 0;            // this process's index in the group
  int size = 1;
};

// One thread at a time may call it. Any thread may call the works that it returns. A receive matches the send
// with the same tag.
class ProcessGroup {
 public:
  // Makes a group over Gloo. All members call it. A thread of its own takes Python's global lock (GIL), so
  // the caller must not hold it. Errors: kUnavailable (not all members came by the deadline, or no
  // connection).
  static Result<std::unique_ptr<ProcessGroup>> create(const GroupPlace& place, Deadline deadline);
  virtual ~ProcessGroup() = default;

  // Start a message of at least one byte. `peer` is an index in the group. The caller keeps the memory until
  // the work is done. Errors: kAborted with Gloo's text.
  virtual Result<std::shared_ptr<GroupWork>> send(int peer, ConstByteSpan data, int tag) = 0;
  virtual Result<std::shared_ptr<GroupWork>> receive(int peer, ByteSpan data, int tag) = 0;
};

// Returns PyTorch's version at build time: "2.13.0+cpu".
std::string torch_version();

}  // namespace roundelay::platform
