// One line a message on stderr, prefixed with the rank. Levels are Horovod's names.
#pragma once

#include <string>
#include <string_view>

namespace roundelay {

enum class LogLevel : unsigned char { kTrace, kDebug, kInfo, kWarning, kError, kFatal };

// Set once by Context at init (and by each separately loaded module); thread-safe.
void set_log(LogLevel least, int rank, bool with_time);
[[nodiscard]] bool log_enabled(LogLevel level);
void log(LogLevel level, std::string_view message);

}  // namespace roundelay
