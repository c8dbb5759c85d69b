// What the kernel knows of this process's threads.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "base/clock.h"

namespace roundelay::testing {

// Returns whether the thread sleeps. A thread that only waits for a core does not.
inline bool asleep(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_ends = text.rfind(')');
  return name_ends != std::string::npos && text.size() > name_ends + 2 && text[name_ends + 2] == 'S';
}

// Waits until the thread sleeps.
inline void wait_until_asleep(pid_t thread) {
  while (!asleep(thread)) std::this_thread::yield();
}

inline std::ptrdiff_t entries_of(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

inline std::ptrdiff_t threads_now() { return entries_of("/proc/self/task"); }

// Returns whether soon no more than so many threads are left: a thread that was joined stays in the kernel's
// list for a moment.
inline bool threads_end(std::ptrdiff_t left) {
  const Deadline limit = Deadline::after(std::chrono::seconds(60));
  while (threads_now() > left && !limit.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return threads_now() <= left;
}

}  // namespace roundelay::testing
