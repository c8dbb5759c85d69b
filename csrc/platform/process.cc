#include "platform/process.h"

#include <sys/syscall.h>

#include <array>
#include <fstream>
#include <string_view>

namespace roundelay::platform {
namespace {

struct SystemCall {
  long number;
  std::string_view name;
};

// The system calls in which training scripts wait for long.
constexpr auto kSystemCalls = std::to_array<SystemCall>({
    {SYS_read, "read"},
    {SYS_write, "write"},
    {SYS_pread64, "pread64"},
    {SYS_pwrite64, "pwrite64"},
    {SYS_readv, "readv"},
    {SYS_writev, "writev"},
    {SYS_openat, "openat"},
    {SYS_fsync, "fsync"},
    {SYS_fdatasync, "fdatasync"},
    {SYS_flock, "flock"},
    {SYS_fcntl, "fcntl"},
    {SYS_newfstatat, "newfstatat"},
    {SYS_getdents64, "getdents64"},
    {SYS_ppoll, "ppoll"},
    {SYS_pselect6, "pselect6"},
    {SYS_epoll_pwait, "epoll_pwait"},
    {SYS_futex, "futex"},
    {SYS_nanosleep, "nanosleep"},
    {SYS_clock_nanosleep, "clock_nanosleep"},
    {SYS_wait4, "wait4"},
    {SYS_waitid, "waitid"},
    {SYS_connect, "connect"},
    {SYS_accept, "accept"},
    {SYS_accept4, "accept4"},
    {SYS_recvfrom, "recvfrom"},
    {SYS_recvmsg, "recvmsg"},
    {SYS_sendto, "sendto"},
    {SYS_sendmsg, "sendmsg"},
    {SYS_ioctl, "ioctl"},
    {SYS_msync, "msync"},
    {SYS_munmap, "munmap"},
#ifdef SYS_poll  // only older architectures have these
    {SYS_poll, "poll"},
    {SYS_select, "select"},
    {SYS_epoll_wait, "epoll_wait"},
    {SYS_open, "open"},
    {SYS_stat, "stat"},
#endif
});

std::string first_line(pid_t process, const char* file) {
  std::string line;
  std::getline(std::ifstream("/proc/" + std::to_string(process) + "/" + file), line);
  return line;
}

// Returns "" if the kernel does not say: the process belongs to another user, or it runs again.
std::string system_call_of(pid_t process) {
  long number = -1;
  if (!(std::ifstream("/proc/" + std::to_string(process) + "/syscall") >> number)) return {};
  for (const SystemCall& call : kSystemCalls) {
    if (call.number == number) return std::string(call.name);
  }
  return number < 0 ? "" : "number " + std::to_string(number);
}

std::string describe_activity(pid_t process) {
  switch (activity_of(process)) {
    case Activity::kRuns:
      return "computes";
    case Activity::kStopped:
      return "is stopped (SIGSTOP, Ctrl-Z or a debugger)";
    case Activity::kEnded:
      return "has ended";
    default:
      break;
  }
  const std::string call = system_call_of(process);
  return call.empty() ? "waits" : "waits in the system call " + call;
}

}  // namespace

Activity parse_activity(const std::string& stat) {
  // The state follows the program's name, which may contain parentheses and spaces.
  const auto name_end = stat.rfind(") ");
  if (name_end == std::string::npos || name_end + 2 >= stat.size()) return Activity::kEnded;
  switch (stat[name_end + 2]) {
    case 'R':
      return Activity::kRuns;
    case 'T':
    case 't':
      return Activity::kStopped;
    case 'Z':
    case 'X':
      return Activity::kEnded;
    default:
      return Activity::kSleeps;
  }
}

Activity activity_of(pid_t process) { return parse_activity(first_line(process, "stat")); }

std::string describe_process(pid_t process) {
  return "its process " + std::to_string(process) + " " + describe_activity(process);
}

}  // namespace roundelay::platform
