// Time. Pure logic takes a TimePoint as an argument, blocking calls take a Deadline, tests pass made-up
// times.
#pragma once

#include <algorithm>
#include <atomic>
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

  // Returns this deadline, which passes at once when the flag becomes true. The flag must outlive all copies;
  // null changes nothing.
  [[nodiscard]] Deadline unless(const std::atomic<bool>* given_up) const {
    Deadline other = *this;
    other.given_up_ = given_up;
    return other;
  }

  [[nodiscard]] TimePoint when() const { return when_; }
  [[nodiscard]] bool passed(TimePoint now) const { return now >= when_ || given_up(); }
  [[nodiscard]] bool passed() const { return *this != never() && passed(steady_now()); }
  // Returns the sooner, or the later time of two. The flag is this deadline's, or else the other one's.
  [[nodiscard]] Deadline sooner(Deadline other) const { return with(other, std::min(when_, other.when_)); }
  [[nodiscard]] Deadline later(Deadline other) const { return with(other, std::max(when_, other.when_)); }
  // Returns the time until which a wait may sleep before it looks at passed() again.
  [[nodiscard]] TimePoint look(TimePoint now) const {
    return given_up_ == nullptr ? when_ : std::min(when_, given_up() ? now : now + kBetweenLooks);
  }
  // Returns the time until look() in whole milliseconds, rounded up, for poll(2) and its like; -1 for
  // never().
  [[nodiscard]] int poll_milliseconds(TimePoint now) const;
  friend bool operator==(Deadline, Deadline) = default;

 private:
  static constexpr Duration kBetweenLooks = std::chrono::milliseconds(50);
  explicit Deadline(TimePoint when) : when_(when) {}
  [[nodiscard]] bool given_up() const { return given_up_ != nullptr && given_up_->load(); }
  [[nodiscard]] Deadline with(Deadline other, TimePoint when) const {
    return at(when).unless(given_up_ != nullptr ? given_up_ : other.given_up_);
  }
  TimePoint when_;
  const std::atomic<bool>* given_up_ = nullptr;
};

}  // namespace roundelay
