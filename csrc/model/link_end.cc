#include "model/link_end.h"

#include <algorithm>

namespace roundelay::model {

void LinkEnd::advance(double now) {
  if (weight_ > 0) {
    share_ += (now - at_) * bandwidth_ / weight_;
    busy_ += now - at_;
  }
  at_ = now;
}

void LinkEnd::add(double now, std::int64_t owner, double bytes, double weight) {
  ++version_;
  bytes_ += bytes * weight;
  if (sharing_ == Sharing::kFifo) {
    if (fifo_.empty()) at_ = now;
    fifo_.push_back({bytes * weight / bandwidth_, weight, owner, version_});
    return;
  }
  advance(now);
  weight_ += weight;
  fair_.push({share_ + bytes, weight, owner, version_});
}

double LinkEnd::next_end() const {
  if (sharing_ == Sharing::kFifo) return fifo_.empty() ? kNever : at_ + fifo_.front().end;
  return fair_.empty() ? kNever : at_ + std::max(0.0, fair_.top().end - share_) * weight_ / bandwidth_;
}

std::int64_t LinkEnd::finish(double now) {
  ++version_;
  if (sharing_ == Sharing::kFifo) {
    const Flow done = fifo_.front();
    fifo_.pop_front();
    busy_ += done.end;
    at_ = now;
    return done.owner;
  }
  advance(now);
  const Flow done = fair_.top();
  fair_.pop();
  share_ = done.end;  // exact, where advance() has rounded
  weight_ = fair_.empty() ? 0 : weight_ - done.weight;
  return done.owner;
}

}  // namespace roundelay::model
