// Chrome trace events as text: microseconds, one process a rank.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace roundelay::timeline {

// Builds events separated by ",\n". Times are nanoseconds of this rank's clock; `offset` moves them to rank
// 0's.
class JsonEvents {
 public:
  JsonEvents(int rank, std::int64_t offset) : rank_(rank), offset_(offset) {}

  // Names and order of the rank and its tracks.
  void announce();
  // "Events are missing here": the buffer was full.
  void dropped(std::int64_t at, std::uint64_t count);
  // One phase ('b', 'e', 'n') of a tensor's life.
  void async(char phase, std::uint64_t id, std::string_view name, std::int64_t at);

  // These two open an event: argument() any number of times, then end().
  void complete(int track, std::string_view name, std::int64_t begin, std::int64_t end);
  void instant(int track, std::string_view name, std::int64_t at);
  void argument(std::string_view key, std::integral auto value) {
    begin_argument(key);
    text_ += std::to_string(value);
  }
  void argument(std::string_view key, std::string_view value);
  void argument(std::string_view key, std::span<const std::string_view> values);  // without the empty ones
  void argument_microseconds(std::string_view key, std::int64_t nanoseconds);
  void end();

  [[nodiscard]] std::size_t size() const { return text_.size(); }
  std::string text() && { return std::move(text_); }

 private:
  void open(char phase, int track, std::string_view name);
  void metadata(std::string_view kind, int track, std::string_view key, std::string_view value);
  void begin_argument(std::string_view key);
  void add_string(std::string_view value);
  void add_microseconds(std::int64_t nanoseconds);

  const int rank_;
  const std::int64_t offset_;
  bool arguments_ = false;  // the event that is open has some
  std::string text_;
};

}  // namespace roundelay::timeline
