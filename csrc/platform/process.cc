#include "platform/process.h"

#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>

namespace roundelay::platform {
namespace {

struct SystemCall {
  long number;
  std::string_view name;
};

// All system calls that the kernel's headers of the build have.
constexpr auto kSystemCalls = std::to_array<SystemCall>({
#include <system_calls.inc>  // CMake writes it
});

// Those from number 424 on, which are equal on all architectures: the kernel may be newer than the headers.
constexpr long kFirstCommon = 424;
constexpr std::array<std::string_view, 47> kCommon = {"pidfd_send_signal",
                                                      "io_uring_setup",
                                                      "io_uring_enter",
                                                      "io_uring_register",
                                                      "open_tree",
                                                      "move_mount",
                                                      "fsopen",
                                                      "fsconfig",
                                                      "fsmount",
                                                      "fspick",
                                                      "pidfd_open",
                                                      "clone3",
                                                      "close_range",
                                                      "openat2",
                                                      "pidfd_getfd",
                                                      "faccessat2",
                                                      "process_madvise",
                                                      "epoll_pwait2",
                                                      "mount_setattr",
                                                      "quotactl_fd",
                                                      "landlock_create_ruleset",
                                                      "landlock_add_rule",
                                                      "landlock_restrict_self",
                                                      "memfd_secret",
                                                      "process_mrelease",
                                                      "futex_waitv",
                                                      "set_mempolicy_home_node",
                                                      "cachestat",
                                                      "fchmodat2",
                                                      "map_shadow_stack",
                                                      "futex_wake",
                                                      "futex_wait",
                                                      "futex_requeue",
                                                      "statmount",
                                                      "listmount",
                                                      "lsm_get_self_attr",
                                                      "lsm_set_self_attr",
                                                      "lsm_list_modules",
                                                      "mseal",
                                                      "setxattrat",
                                                      "getxattrat",
                                                      "listxattrat",
                                                      "removexattrat",
                                                      "open_tree_attr",
                                                      "file_getattr",
                                                      "file_setattr",
                                                      "listns"};

std::string first_line(pid_t process, const char* file) {
  std::string line;
  std::getline(std::ifstream("/proc/" + std::to_string(process) + "/" + file), line);
  return line;
}

// Returns "" if the kernel does not say: the process belongs to another user, or it runs again.
std::string system_call_of(pid_t process) {
  long number = -1;
  if (!(std::ifstream("/proc/" + std::to_string(process) + "/syscall") >> number)) return {};
  return number < 0 ? "" : name_of_system_call(number);
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

std::string name_of_system_call(long number) {
  const auto common = static_cast<std::size_t>(number - kFirstCommon);
  if (number >= kFirstCommon && common < kCommon.size()) return std::string(kCommon[common]);
  const auto* const call = std::ranges::find(kSystemCalls, number, &SystemCall::number);
  return call == kSystemCalls.end() ? "number " + std::to_string(number) : std::string(call->name);
}

std::string describe_process(pid_t process) {
  return "its process " + std::to_string(process) + " " + describe_activity(process);
}

}  // namespace roundelay::platform
