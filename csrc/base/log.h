// Log messages: each is one line on stderr with the rank. The levels have Horovod's names.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace roundelay {

enum class LogLevel : unsigned char { kTrace, kDebug, kInfo, kWarning, kError, kFatal };
inline constexpr std::array<std::string_view, 6> kLogLevelNames = {"trace",   "debug", "info",
                                                                   "warning", "error", "fatal"};
inline std::string_view name_of(LogLevel level) { return kLogLevelNames[static_cast<std::size_t>(level)]; }

// Sets the lowest level to print, the rank (-1: none) and whether lines show the time. init() calls it.
// Thread-safe.
void set_log(LogLevel least, int rank, bool with_time);
// Returns whether log() would print a message of this level. Thread-safe.
[[nodiscard]] bool log_enabled(LogLevel level);
// Prints one message, in one write(2). Thread-safe.
void log(LogLevel level, std::string_view message);

}  // namespace roundelay
