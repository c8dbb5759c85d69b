#include "collective/tcp/stream_ends.h"

namespace roundelay::collective::tcp {

Result<std::shared_ptr<StreamEnds>> StreamEnds::create() {
  auto doorbell = platform::EventFd::create();
  if (!doorbell.ok()) return doorbell.status();
  return std::make_shared<StreamEnds>(std::move(doorbell).value());
}

void StreamEnds::put(StreamEnd end) {
  MutexLock lock(mutex_);
  ends_.push_back(std::move(end));
  doorbell_.signal();
}

std::vector<StreamEnd> StreamEnds::take() {
  MutexLock lock(mutex_);
  doorbell_.drain();
  return std::exchange(ends_, {});
}

}  // namespace roundelay::collective::tcp
