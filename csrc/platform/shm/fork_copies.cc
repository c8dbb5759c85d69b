#include "platform/shm/fork_copies.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>

#include "platform/fd.h"

namespace roundelay::platform {
namespace {

struct Copied {
  ByteSpan whole, part;
  int fd;  // not an Fd, because forked children would lose it
  off_t offset;
};

// All copied mappings, by address. Never destroyed, because mappings may outlive static destruction.
struct Registry {
  std::mutex mutex;
  std::map<const std::byte*, Copied> mappings;
};

Registry& registry() {
  static Registry* const instance = new Registry;
  return *instance;
}

// Runs in the only thread of a forked child. It makes async-signal-safe calls only and allocates nothing.
void copy_now() {
  for (const auto& [address, copied] : registry().mappings) {
    // Reserves all addresses first: the child must not map other memory there, which a destructor would
    // unmap.
    constexpr int kTaken = MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS | MAP_NORESERVE;
    if (::mmap(copied.whole.data(), copied.whole.size(), PROT_NONE, kTaken, -1, 0) != MAP_FAILED) {
      // If this fails, the child has no access to the memory and faults at the first use.
      static_cast<void>(::mmap(copied.part.data(), copied.part.size(), PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_FIXED, copied.fd, copied.offset));
    }
    ::close(copied.fd);
  }
  registry().mutex.unlock();
}

}  // namespace

Status copy_in_children(ByteSpan whole, ByteSpan part, int fd, std::size_t offset) {
  [[maybe_unused]] static const int once =
      ::pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); }, copy_now);
  const int own = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return errno_status("dup of shared memory", errno);
  const std::lock_guard lock(registry().mutex);
  registry().mappings.insert({whole.data(), {whole, part, own, static_cast<off_t>(offset)}});
  return {};
}

void forget_copies(ByteSpan whole) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().mappings.find(whole.data());
  if (found == registry().mappings.end()) return;
  ::close(found->second.fd);
  registry().mappings.erase(found);
}

}  // namespace roundelay::platform
