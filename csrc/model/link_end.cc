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
  advance(now);
  weight_ += weight;
  flows_.push({share_ + bytes, weight, owner, version_});
}

double LinkEnd::next_end() const {
  return flows_.empty() ? kNever : at_ + std::max(0.0, flows_.top().end - share_) * weight_ / bandwidth_;
}

std::int64_t LinkEnd::finish(double now) {
  ++version_;
  advance(now);
  const Flow done = flows_.top();
  flows_.pop();
  share_ = done.end;  // exact, where advance() has rounded
  weight_ = flows_.empty() ? 0 : weight_ - done.weight;
  return done.owner;
}

}  // namespace roundelay::model
