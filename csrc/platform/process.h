// The state of any process on this machine, as /proc shows it. The process itself takes no part.
#pragma once

#include <sys/types.h>

#include <string>

namespace roundelay::platform {

// The state of a process's main thread, which usually runs Python.
enum class Activity : unsigned char { kRuns, kSleeps, kStopped, kEnded };

// Reads the state from `stat`, the text of /proc/PID/stat. An empty text means kEnded: no such process.
Activity parse_activity(const std::string& stat);

// Returns the state of a process. Thread-safe.
Activity activity_of(pid_t process);
// Returns "read" for read's number, and "number 999" for one that no kernel has had so far.
std::string name_of_system_call(long number);
// Returns what the process does: "its process 4711 computes", "... waits in the system call read", "... is
// stopped (SIGSTOP, Ctrl-Z or a debugger)" or "... has ended". Names the system call if the kernel shows it.
// Thread-safe.
std::string describe_process(pid_t process);

}  // namespace roundelay::platform
