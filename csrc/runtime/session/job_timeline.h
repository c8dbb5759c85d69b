// The job's timeline as this rank sees it: records events here, sends them to rank 0 in chunks, and writes
// the file on rank 0. Rank 0 starts and stops it for all ranks.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "base/annotations.h"
#include "control/control_inbox.h"
#include "submit/table.h"
#include "timeline/file.h"
#include "timeline/timeline.h"
#include "wire/messages.h"

namespace roundelay::runtime {

// Thread-safe. Its messages go to the inbox and travel with the negotiator's next step; callers wake the
// negotiator.
class JobTimeline {
 public:
  // `file`: null, or open if rank 0 is to record from the start. `inbox` outlives this object. `size`: ranks
  // in the world.
  JobTimeline(int rank, int size, std::unique_ptr<timeline::TimelineFile> file, control::ControlInbox& inbox);

  // Returns this rank's recorder.
  timeline::Timeline& events() { return events_; }
  // Records the life of an operation that was completed at `now`.
  void record(const submit::Entry& entry, TimePoint now);

  // Opens the file, in place of one that is open. Only rank 0 calls it. Errors: kInvalidArgument with path
  // and reason.
  Status open(const std::string& path) EXCLUDES(mutex_);
  [[nodiscard]] bool is_open() const EXCLUDES(mutex_);
  // Start and stop the recording on all ranks. Only rank 0 calls them.
  void start_everywhere(bool mark_cycles) EXCLUDES(mutex_);
  void stop_everywhere();
  // Waits for the last chunks of all ranks, for at most 5 seconds and not after abort(). Returns at once if
  // no file is open, so on all ranks but 0.
  void wait_for_last_chunks() EXCLUDES(mutex_);
  // Ends the file, if one is open. Errors: as TimelineFile::close().
  Status close() EXCLUDES(mutex_);
  // Ends wait_for_last_chunks(), also later calls: communication is over, and no more chunks come.
  void abort() EXCLUDES(mutex_);

  // Starts or stops the recording here, as rank 0 has said. Only other ranks call it.
  void on_switch(wire::TimelineSwitch to);
  // Writes a rank's chunk to the file. Only rank 0 calls it. Logs an error of the file system.
  void on_chunk(const wire::TimelineChunk& chunk) EXCLUDES(mutex_);

  // Sends what was recorded if that is due. Returns when it is due again. Only the coordination thread calls
  // it.
  Deadline send_if_due(TimePoint now);
  // Sends what was recorded; this rank sends nothing more until the next start.
  void send_last() EXCLUDES(sending_);

 private:
  void send_recorded() REQUIRES(sending_);

  const int rank_;
  const int size_;
  timeline::Timeline events_;
  control::ControlInbox& inbox_;
  TimePoint next_sending_{};  // used by the coordination thread only
  Mutex sending_;             // Timeline::drain() is for one thread at a time

  mutable Mutex mutex_;
  CondVar changed_;
  bool aborted_ GUARDED_BY(mutex_) = false;
  // Ranks that have sent a last chunk since the start. One that leaves after the timeline was stopped sends a
  // second one.
  std::set<int> ended_ GUARDED_BY(mutex_);
  const std::unique_ptr<timeline::TimelineFile> file_ GUARDED_BY(mutex_);
};

}  // namespace roundelay::runtime
