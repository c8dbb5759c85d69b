#include "base/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

namespace roundelay {
namespace {

// Returns the number of cores that a process may use; 0 if it is unknown.
int cores_of(pid_t process) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return ::sched_getaffinity(process, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 0;
}

// Returns the number of cores that the cgroup of this process may use; 0 if it is unknown.
int cores_of_cgroup() {
  std::ifstream file("/proc/self/cgroup");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const std::string_view path = cgroup_in(text);
  if (path.empty()) return 0;
  std::string list;
  std::getline(std::ifstream("/sys/fs/cgroup" + std::string(path) + "/cpuset.cpus.effective"), list);
  return cores_in(list);
}

// Process 1 usually has all cores of its machine or container, of which a job may have a part.
// std::thread::hardware_concurrency() also counts those that a container may not use, or with glibc 2.34 only
// those to which this process is bound.
int count_cores() {
  const int known = std::max(cores_of(1), cores_of(0));
  if (const int most = cores_of_cgroup(); most > 0) return known > 0 ? std::min(known, most) : most;
  return known > 0 ? known : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Takes a number from the front of the text. Returns -1 if there is none.
int take_number(std::string_view& text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0) return -1;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

bool take_sign(std::string_view& text, char sign) {
  const bool begins = !text.empty() && text.front() == sign;
  if (begins) text.remove_prefix(1);
  return begins;
}

}  // namespace

bool outnumber_cores(int ranks) { return ranks > count_cores(); }

bool outnumber_machine(int ranks) {
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 && ranks > online;
}

std::string_view cgroup_in(std::string_view text) {
  constexpr std::string_view kVersion2 = "0::";
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!line.starts_with(kVersion2)) continue;
    const std::string_view path = line.substr(kVersion2.size());
    return path.starts_with("/..") ? std::string_view() : path;
  }
  return {};
}

int cores_in(std::string_view list) {
  int cores = 0;
  do {
    const int first = take_number(list);
    const int last = take_sign(list, '-') ? take_number(list) : first;
    if (first < 0 || last < first) return 0;
    cores += last - first + 1;
  } while (take_sign(list, ','));
  return list.empty() ? cores : 0;
}

}  // namespace roundelay
