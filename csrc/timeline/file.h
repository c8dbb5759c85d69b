// The job's trace on disk, written by rank 0: one Chrome/Perfetto JSON array of all ranks' events.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace roundelay::timeline {

// Every append reaches the kernel at once, so a job that dies leaves a file that still opens: trace viewers
// (and `roundelay timeline`) accept an array whose end is missing. One thread at a time.
class TimelineFile {
 public:
  TimelineFile() = default;
  ~TimelineFile();
  TimelineFile(const TimelineFile&) = delete;
  TimelineFile& operator=(const TimelineFile&) = delete;

  // Replaces what is there. Errors: kInvalidArgument with path and reason; a file already open stays so.
  Status open(const std::string& path);
  [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }
  // `events`: as Timeline::drain() gives them. An error (a full disk) is given once and ends the file.
  Status append(std::string_view events);
  // Ends the array. Nothing to do when none is open.
  Status close();

 private:
  Status write(std::string_view text);

  std::string path_;
  int descriptor_ = -1;
  bool empty_ = true;
};

}  // namespace roundelay::timeline
