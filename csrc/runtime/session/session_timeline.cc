// The session's part in the timeline: events are drained here, travel as chunks, and rank 0 writes the file.
#include "base/log.h"
#include "runtime/session/session.h"

namespace roundelay::runtime {
namespace {

constexpr Duration kPeriod = std::chrono::milliseconds(500);
constexpr Duration kPatience = std::chrono::seconds(5);

}  // namespace

Status Session::start_timeline(const std::string& path, bool mark_cycles) {
  if (parts_.rank_info.rank != 0) return {};  // rank 0's word starts it here too
  {
    MutexLock lock(mutex_);
    ROUNDELAY_RETURN_IF_ERROR(file_->open(path));
  }
  record_everywhere(mark_cycles);
  return {};
}

void Session::record_everywhere(bool mark_cycles) {
  {
    MutexLock lock(mutex_);
    last_chunks_ = 0;
  }
  timeline_.start(mark_cycles);
  negotiator_.post_timeline(wire::TimelineSwitch{true, mark_cycles});
  engine_.start();
  engine_.wake_background();
}

Status Session::stop_timeline() {
  if (parts_.rank_info.rank != 0) return {};
  timeline_.stop();
  negotiator_.post_timeline(wire::TimelineSwitch{false, false});
  ship_timeline(true);
  engine_.wake_background();
  collect_last_chunks();
  MutexLock lock(mutex_);
  return file_->close();
}

void Session::timeline_switch(wire::TimelineSwitch to) {
  if (to.on) {
    timeline_.start(to.mark_cycles);
  } else {
    timeline_.stop();
    ship_timeline(true);
  }
}

void Session::observe(const submit::Entry& entry, TimePoint now) {
  if (!timeline_.enabled()) return;
  timeline_.record_tensor(entry.request.name,
                          {entry.times.submitted, entry.times.ordered, entry.times.started, now});
}

void Session::end_wait() {
  const auto wait = handles_.end_wait();
  if (wait) timeline_.record_span(timeline::Track::kTraining, "synchronize", wait->begin, wait->end);
}

Deadline Session::housekeeping(TimePoint now) {
  if (!timeline_.enabled()) return Deadline::never();
  if (now >= next_shipping_) {
    next_shipping_ = now + kPeriod;
    ship_timeline(false);
  }
  return Deadline::at(next_shipping_);
}

void Session::ship_timeline(bool last) {
  MutexLock lock(shipping_);  // a stop on one thread and the coordination thread's own round
  std::string text = timeline_.drain();
  while (!text.empty()) {
    negotiator_.post_timeline({parts_.rank_info.rank, false, std::move(text)});
    text = timeline_.drain();
  }
  if (last) negotiator_.post_timeline({parts_.rank_info.rank, true, {}});
}

void Session::clock_offset(std::int64_t nanoseconds) { timeline_.set_offset(Duration(nanoseconds)); }

void Session::timeline_chunk(wire::TimelineChunk chunk) {
  MutexLock lock(mutex_);
  if (chunk.last) {
    ++last_chunks_;
    changed_.notify_all();
  }
  if (!file_->is_open() || chunk.events.empty()) return;
  if (Status s = file_->append(chunk.events); !s.ok()) log(LogLevel::kError, s.message());
}

void Session::collect_last_chunks() {
  const Deadline deadline = Deadline::after(kPatience);
  MutexLock lock(mutex_);
  while (file_->is_open() && last_chunks_ < parts_.rank_info.size && !deadline.passed() && !abort_.raised()) {
    changed_.wait_until(mutex_, deadline);
  }
}

}  // namespace roundelay::runtime
