// Time. Pure logic takes a TimePoint as an argument, blocking calls take a Deadline, tests pass made-up
// times.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace roundelay {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

inline TimePoint steady_now() { return std::chrono::steady_clock::now(); }
// Converts to the form that messages and traces carry: nanoseconds since the steady clock's epoch.
inline std::int64_t nanoseconds(TimePoint when) { return when.time_since_epoch().count(); }
// Returns text for messages: "60 s", below ten seconds also tenths: "0.2 s". Only zero is "0 s".
std::string seconds_text(Duration duration);

// The time at which a blocking call gives up. Deadline::never() is for waits that something else ends: the
// abort token, or a caller that waits in short pieces.
class Deadline {
 public:
  static Deadline never() { return Deadline(TimePoint::max()); }
  static Deadline at(TimePoint when) { return Deadline(when); }
  static Deadline after(Duration delay) { return Deadline(steady_now() + delay); }

  [[nodiscard]] TimePoint when() const { return when_; }
  [[nodiscard]] bool passed(TimePoint now) const { return now >= when_; }
  [[nodiscard]] bool passed() const { return *this != never() && passed(steady_now()); }
  [[nodiscard]] Deadline sooner(Deadline other) const { return when_ < other.when_ ? *this : other; }
  // Returns the remaining time in whole milliseconds, rounded up, for poll(2) and its like; -1 for never().
  [[nodiscard]] int poll_milliseconds(TimePoint now) const;
  friend bool operator==(Deadline, Deadline) = default;

 private:
  explicit Deadline(TimePoint when) : when_(when) {}
  TimePoint when_;
};

}  // namespace roundelay
