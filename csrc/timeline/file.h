// The job's trace on disk: one Chrome/Perfetto JSON array of all ranks' events. Rank 0 writes it.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace roundelay::timeline {

// Every append() writes to the file at once. So a job that dies leaves a file that still opens: trace viewers
// and `roundelay timeline` accept an array without its end. One thread at a time.
class TimelineFile {
 public:
  TimelineFile() = default;
  // Closes the file and ignores errors.
  ~TimelineFile();
  TimelineFile(const TimelineFile&) = delete;
  TimelineFile& operator=(const TimelineFile&) = delete;

  // Opens the file and drops its content. Closes the file that was open before. kInvalidArgument, with path
  // and reason: the file cannot be opened, and the old one stays open; or a write failed.
  Status open(const std::string& path);
  [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }
  // Adds events in the form of Timeline::drain(). Does nothing while no file is open. kInvalidArgument: a
  // write failed, such as on a full disk; the file is closed then.
  Status append(std::string_view events);
  // Ends the array and closes the file. Does nothing while no file is open. Errors as append().
  Status close();

 private:
  Status write(std::string_view text);

  std::string path_;
  int descriptor_ = -1;
  bool empty_ = true;  // no events yet
};

}  // namespace roundelay::timeline
