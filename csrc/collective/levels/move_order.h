// The order in which all members begin the hops of the rounds of one call. Pure.
//
// A hop of a round begins when the hop before it is over on this member. `lag` more rounds have begun by
// then, so that there is work meanwhile.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace roundelay::collective::levels {

struct HopTurn {
  std::uint64_t round = 0;
  std::size_t hop = 0;
};

class HopOrder {
 public:
  HopOrder(std::uint64_t rounds, std::size_t hops, std::uint64_t lag)
      : rounds_(rounds), hops_(hops), lag_(lag), left_(rounds * hops), hop_(hops - 1) {
    find();
  }

  // Returns how many rounds have to begin before the last hop of the first one may; for rounds of one hop, so
  // many that there is work meanwhile. If fewer may be in progress, members wait for each other for ever.
  [[nodiscard]] std::uint64_t rounds_ahead() const { return std::max<std::size_t>(1, hops_ - 1) * lag_; }
  [[nodiscard]] bool over() const { return left_ == 0; }
  // Returns the next hop. Not to be called when it is over.
  [[nodiscard]] HopTurn next() const { return {time_ - hop_ * lag_, hop_}; }
  void advance() {
    --left_;
    step();
    find();
  }

 private:
  // At a time t, hop h of round t - h * lag begins, the last hop first.
  void step() {
    if (hop_ == 0) ++time_;
    hop_ = hop_ == 0 ? hops_ - 1 : hop_ - 1;
  }
  void find() {
    while (left_ > 0 && (time_ < hop_ * lag_ || time_ - hop_ * lag_ >= rounds_)) step();
  }

  std::uint64_t rounds_;
  std::size_t hops_;
  std::uint64_t lag_, left_, time_ = 0;
  std::size_t hop_;
};

}  // namespace roundelay::collective::levels
