// How the members of a group on one node come to share memory: the first one makes it and hands it over to
// those who knock at its shm socket. All of them get it, or none does.
//
// Errors: kUnavailable means that all members have heard the same reason and may go on without the memory;
// kAborted that they may not agree.
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

// What each member does with the memory before it counts as there: allocate its part of it.
using Prepare = std::function<Status(const SharedMemory& memory)>;

// One process's side of all handovers. One thread at a time.
class ShmSocket {
 public:
  static Result<ShmSocket> open();
  [[nodiscard]] const std::string& address() const { return listener_.address(); }

  // By the group's first member. `key` tells groups apart.
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
  std::vector<Client> early_;  // of groups whose turn has not come
};

// By the others: `member` is an index in the group, `address` that of the first member's shm socket.
Result<SharedMemory> take_over(const std::string& address, std::uint64_t key, int member,
                               const Prepare& prepare, Deadline deadline);

// Whether the shm socket can be reached from here: not from another network namespace, nor by another user.
Status reach(const std::string& address);
// Whose shm socket it is; 0: it cannot be reached, or its process has no number here.
pid_t process_behind(const std::string& address);

}  // namespace roundelay::platform
