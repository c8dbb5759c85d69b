// Shares memory among the members of a group on one node. The first member creates the memory; the others
// connect to its shm socket (a Unix socket), and it sends them the memory's descriptor. All members get the
// memory, or none.
//
// Errors: kUnavailable means that all members have got the same reason and may continue without the memory;
// kAborted means that the members may disagree.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "platform/shm/memory.h"
#include "platform/shm/unix_socket.h"

namespace roundelay::platform {

// Prepares a member's use of the memory, for example allocates its part. An error fails the handover for all.
using Prepare = std::function<Status(const SharedMemory& memory)>;

// The socket at which one process hands out memory, for all its groups. One thread at a time.
class ShmSocket {
 public:
  // Opens a shm socket at a random address. Errors: kUnavailable.
  static Result<ShmSocket> open();
  [[nodiscard]] const std::string& address() const { return listener_.address(); }

  // Creates `bytes` bytes of zeros and hands them to the other members. The group's first member calls it,
  // all others call take_over() with the same key. Handovers at one socket that may overlap have different
  // keys. `ranks` are the members' ranks, for messages.
  Result<SharedMemory> hand_out(std::uint64_t key, const std::vector<int>& ranks, std::size_t bytes,
                                const Prepare& prepare, Deadline deadline);

 private:
  struct Client {
    UnixSocket socket;
    std::uint64_t key;
    std::uint32_t member;
  };
  explicit ShmSocket(UnixListener listener) : listener_(std::move(listener)) {}
  Result<std::vector<Client>> gather(std::uint64_t key, const std::vector<int>& ranks, Deadline deadline);

  UnixListener listener_;
  std::vector<Client> early_;  // members of groups whose hand_out() has not begun
};

// Receives the memory. All members but the first call it. `member` is this process's index in the group,
// `address` the address of the first member's shm socket.
Result<SharedMemory> take_over(const std::string& address, std::uint64_t key, int member,
                               const Prepare& prepare, Deadline deadline);

// Returns OK if a process of this user at this address accepts connections from here. Errors: kUnavailable
// (nobody listens, or in another network namespace), kAborted (another user does).
Status reach(const std::string& address);
// Returns the process that owns the shm socket; 0 if nobody can connect to it, or if the process is invisible
// in this process namespace.
pid_t listening_process(const std::string& address);

}  // namespace roundelay::platform
