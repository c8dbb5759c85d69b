#include "base/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <ctime>

namespace roundelay {
namespace {

std::atomic<LogLevel> g_least{LogLevel::kWarning};
std::atomic<int> g_rank{-1};
std::atomic<bool> g_with_time{true};

std::string time_of_day() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  localtime_r(&now, &parts);
  std::array<char, 32> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%H:%M:%S ", &parts);
  return {text.data(), length};
}

}  // namespace

void set_log(LogLevel least, int rank, bool with_time) {
  g_least = least;
  g_rank = rank;
  g_with_time = with_time;
}

bool log_enabled(LogLevel level) { return level >= g_least.load(std::memory_order_relaxed); }

void log(LogLevel level, std::string_view message) {
  if (!log_enabled(level)) return;
  std::string line = "[roundelay ";
  if (g_with_time) line += time_of_day();
  line += name_of(level);
  if (const int rank = g_rank; rank >= 0) line += " rank " + std::to_string(rank);
  line.append("] ").append(message).append("\n");
  // One write(2) per line keeps the lines of several ranks apart. A closed stderr is not an error.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace roundelay
