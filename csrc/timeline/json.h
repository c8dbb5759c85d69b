// Writes Chrome trace events as text. Each rank is a process in the trace, each row a thread.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace roundelay::timeline {

// Collects events as JSON objects with ",\n" between them. All times are nanoseconds of this rank's clock.
// One thread at a time.
class JsonEvents {
 public:
  // `offset`: rank 0's clock minus this rank's, in nanoseconds. The text has times of rank 0's clock.
  JsonEvents(int rank, std::int64_t offset) : rank_(rank), offset_(offset) {}

  // Adds the names and the order of the rank and its rows.
  void add_names();
  // Adds a note that `count` events are missing from this time on, because the buffer was full.
  void dropped(std::int64_t at, std::uint64_t count);
  // Adds one async event of tensor number `id`. `phase`: 'b' begins, 'e' ends, 'n' is an instant.
  void async(char phase, std::uint64_t id, std::string_view name, std::int64_t at);

  // Open an event that has a duration, or an instant, in `row` (timeline::Row). Call argument() any number of
  // times, then end().
  void complete(int row, std::string_view name, std::int64_t begin, std::int64_t end);
  void instant(int row, std::string_view name, std::int64_t at);
  void argument(std::string_view key, std::integral auto value) {
    begin_argument(key);
    text_ += std::to_string(value);
  }
  void argument(std::string_view key, std::string_view value);
  // Adds a list; leaves out empty values.
  void argument(std::string_view key, std::span<const std::string_view> values);
  // Adds a number of microseconds, with three decimals.
  void argument_microseconds(std::string_view key, std::int64_t nanoseconds);
  void end();

  // Returns the length of the text up to now.
  [[nodiscard]] std::size_t size() const { return text_.size(); }
  // Returns the events. No event may be open.
  std::string text() && { return std::move(text_); }

 private:
  void open(char phase, int row, std::string_view name);
  void metadata(std::string_view kind, int row, std::string_view key, std::string_view value);
  void begin_argument(std::string_view key);
  void add_string(std::string_view value);
  void add_microseconds(std::int64_t nanoseconds);

  const int rank_;
  const std::int64_t offset_;
  bool arguments_ = false;  // the open event has arguments
  std::string text_;
};

}  // namespace roundelay::timeline
