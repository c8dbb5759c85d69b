#include "platform/fd.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <set>
#include <system_error>

namespace roundelay::platform {
namespace {

// All open descriptors of this process that forked children must not share. Never destroyed, because an Fd
// may outlive static destruction.
struct Owned {
  std::mutex mutex;
  std::set<int> fds;
};

Owned& owned() {
  static Owned* const instance = new Owned;
  return *instance;
}

// Runs in the only thread of a forked child. It makes async-signal-safe calls only and allocates nothing.
void detach_in_child() {
  const int null_device = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : owned().fds) {
    if (null_device < 0 || ::dup3(null_device, fd, O_CLOEXEC) < 0) ::close(fd);
  }
  if (null_device >= 0) ::close(null_device);
  owned().mutex.unlock();
}

void watch_forks() {
  [[maybe_unused]] static const int once =
      ::pthread_atfork([] { owned().mutex.lock(); }, [] { owned().mutex.unlock(); }, detach_in_child);
}

}  // namespace

Fd::Fd(int fd) : fd_(fd) {
  if (fd < 0) return;
  watch_forks();
  const std::lock_guard lock(owned().mutex);
  owned().fds.insert(fd);
}

void Fd::reset() {
  if (fd_ < 0) return;
  const std::lock_guard lock(owned().mutex);
  owned().fds.erase(fd_);
  ::close(fd_);  // Linux closes it even if this fails with EINTR
  fd_ = -1;
}

std::string errno_text(int error) {
  std::string text = std::generic_category().message(error);
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z') text[0] = static_cast<char>(text[0] - 'A' + 'a');
  return text;
}

Status errno_status(const std::string& what, int error) {
  return Status::unavailable(what + ": " + errno_text(error));
}

}  // namespace roundelay::platform
