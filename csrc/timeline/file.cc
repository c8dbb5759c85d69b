#include "timeline/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace roundelay::timeline {
namespace {

Status failure(const std::string& path, int error) {
  return Status::invalid("cannot write the timeline to '" + path + "': " + std::strerror(error));
}

}  // namespace

TimelineFile::~TimelineFile() {
  if (Status ignored = close(); !ignored.ok()) return;  // there is no caller left to tell
}

Status TimelineFile::open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) return failure(path, errno);
  Status closed = close();
  path_ = path;
  descriptor_ = descriptor;
  empty_ = true;
  ROUNDELAY_RETURN_IF_ERROR(write("["));
  return closed;
}

Status TimelineFile::append(std::string_view events) {
  if (!is_open() || events.empty()) return {};
  ROUNDELAY_RETURN_IF_ERROR(write(std::exchange(empty_, false) ? "\n" : ",\n"));
  return write(events);
}

Status TimelineFile::close() {
  if (!is_open()) return {};
  Status written = write("\n]\n");
  if (is_open()) ::close(std::exchange(descriptor_, -1));
  return written;
}

Status TimelineFile::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor_, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      ::close(std::exchange(descriptor_, -1));
      return failure(path_, error);
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

}  // namespace roundelay::timeline
