#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "base/status.h"
#include "collective/tcp/connector.h"
#include "platform/tcp/epoll.h"

namespace roundelay::collective::tcp {

// The connections that a plane's thread has made for one transport, and a doorbell that wakes who waits for
// the transport. Thread-safe.
class StreamEnds {
 public:
  static Result<std::shared_ptr<StreamEnds>> create();
  explicit StreamEnds(platform::EventFd doorbell) : doorbell_(std::move(doorbell)) {}

  void put(StreamEnd end) EXCLUDES(mutex_);
  // Returns the ends that are new since the last call, and silences the doorbell.
  [[nodiscard]] std::vector<StreamEnd> take() EXCLUDES(mutex_);
  void ring() const { doorbell_.signal(); }
  // Returns a descriptor that is readable after put() and ring(), until take().
  [[nodiscard]] const platform::Fd& doorbell() const { return doorbell_.fd(); }

 private:
  const platform::EventFd doorbell_;
  Mutex mutex_;
  std::vector<StreamEnd> ends_ GUARDED_BY(mutex_);
};

}  // namespace roundelay::collective::tcp
