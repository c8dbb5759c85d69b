// A torch.distributed process group of our own, without PyTorch's headers: messages between its members.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"

namespace roundelay::platform {

// One message on its way.
class GroupWork {
 public:
  virtual ~GroupWork() = default;
  // Blocks until the message is sent or here. Errors: kAborted with the medium's words: the peer is gone, or
  // abort() was called.
  virtual Status wait() = 0;
  // Ends a wait(), from another thread. The medium may still use the memory.
  virtual void abort() = 0;
};

struct GroupPlace {
  std::string store_host;  // the TCPStore where its members meet
  std::uint16_t store_port = 0;
  std::string prefix;  // of its keys there
  std::string
      interface;  // network interface; "": PyTorch chooses (GLOO_SOCKET_IFNAME), or the store's loopback
  int index = 0;
  int size = 1;
};

// One thread at a time; works are independent of each other. Messages between two members match by tag.
class ProcessGroup {
 public:
  // Over Gloo. Collective over the members. Takes Python's lock for a moment: the caller must not hold it.
  static Result<std::unique_ptr<ProcessGroup>> create(const GroupPlace& place, Deadline deadline);
  virtual ~ProcessGroup() = default;

  // At least one byte. The memory must stay valid until the work is done.
  virtual Result<std::shared_ptr<GroupWork>> send(int peer, ConstByteSpan data, int tag) = 0;
  virtual Result<std::shared_ptr<GroupWork>> receive(int peer, ByteSpan data, int tag) = 0;
};

// "2.13.0+cpu"
std::string torch_version();

}  // namespace roundelay::platform
