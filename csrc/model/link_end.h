// One end of a link. Its transfers are under way at once, each with an equal part of the bandwidth. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <queue>
#include <vector>

namespace roundelay::model {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

// Times are seconds since the job began. `now` never goes back from call to call.
class LinkEnd {
 public:
  explicit LinkEnd(double bandwidth) : bandwidth_(bandwidth) {}

  // Begins `weight` equal transfers of `bytes` bytes each, which end together. finish() returns their
  // `owner`.
  void add(double now, std::int64_t owner, double bytes, double weight);
  // Returns when the next transfer ends if no other is added; kNever: none is under way.
  [[nodiscard]] double next_end() const;
  // Ends the transfer that ends next, and returns its owner. Precondition: next_end() is `now`.
  std::int64_t finish(double now);
  // Returns a number that grows with every change of next_end(): an event that was planned for an older one
  // is out of date.
  [[nodiscard]] std::uint64_t version() const { return version_; }

  // Return the bytes of all transfers that have begun, and the seconds in which the end has sent.
  [[nodiscard]] double bytes() const { return bytes_; }
  [[nodiscard]] double busy() const { return busy_; }

 private:
  struct Flow {
    double end = 0;  // the value of share_ at which it ends
    double weight = 0;
    std::int64_t owner = 0;
    std::uint64_t number = 0;  // counts flows: if two end together, the one that began first ends first
    friend bool operator>(const Flow& a, const Flow& b) {
      return a.end != b.end ? a.end > b.end : a.number > b.number;
    }
  };
  // Brings share_, busy_ and at_ to `now`.
  void advance(double now);

  double bandwidth_;
  std::priority_queue<Flow, std::vector<Flow>, std::greater<>> flows_{};
  double weight_ = 0;  // the sum of all flows' weights
  double share_ = 0;   // bytes that one transfer would have sent, had it been here from the beginning
  double at_ = 0;      // the time of share_
  double bytes_ = 0, busy_ = 0;
  std::uint64_t version_ = 0;
};

}  // namespace roundelay::model
