#include "control/control_inbox.h"

#include <algorithm>

namespace roundelay::control {

void ControlInbox::request_end_of_linger(LaneId lane) {
  MutexLock lock(mutex_);
  std::vector<LaneId>& lanes = contents_.end_linger;
  if (std::find(lanes.begin(), lanes.end(), lane) == lanes.end()) lanes.push_back(lane);
}

void ControlInbox::post(Message message) {
  MutexLock lock(mutex_);
  contents_.messages.push_back(std::move(message));
}

void ControlInbox::run(Task task) {
  MutexLock lock(mutex_);
  contents_.tasks.push_back(std::move(task));
}

ControlInbox::Contents ControlInbox::drain() {
  MutexLock lock(mutex_);
  return std::exchange(contents_, {});
}

}  // namespace roundelay::control
