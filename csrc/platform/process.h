// What the kernel tells about a process of this machine without asking it.
#pragma once

#include <sys/types.h>

#include <string>

namespace roundelay::platform {

// Of the main thread, in general: it is what runs Python.
enum class Activity : unsigned char { kRuns, kSleeps, kStopped, kEnded };

// `stat`: the text of /proc/PID/stat; empty: there is no such process.
Activity parse_activity(const std::string& stat);

Activity activity_of(pid_t process);
// "its process 4711 computes", "... waits in the system call read", "... is stopped (SIGSTOP, Ctrl-Z or a
// debugger)" or "... has ended". The system call is named if the kernel lets us see it.
std::string describe_process(pid_t process);

}  // namespace roundelay::platform
