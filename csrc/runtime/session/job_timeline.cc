#include "runtime/session/job_timeline.h"

#include <utility>

#include "base/log.h"

namespace roundelay::runtime {
namespace {

constexpr Duration kSendingPeriod = std::chrono::milliseconds(500);
constexpr Duration kLastChunksTimeout = std::chrono::seconds(5);

}  // namespace

JobTimeline::JobTimeline(int rank, int size, std::unique_ptr<timeline::TimelineFile> file,
                         control::ControlInbox& inbox)
    : rank_(rank),
      size_(size),
      events_(rank),
      inbox_(inbox),
      file_(file ? std::move(file) : std::make_unique<timeline::TimelineFile>()) {}

void JobTimeline::record(const submit::Entry& entry, TimePoint now) {
  if (!events_.enabled()) return;
  const submit::EntryTimes& times = entry.times;
  events_.record_tensor(entry.request.name, {times.submitted, times.ordered, times.started, now});
}

Status JobTimeline::open(const std::string& path) {
  MutexLock lock(mutex_);
  return file_->open(path);
}

bool JobTimeline::is_open() const {
  MutexLock lock(mutex_);
  return file_->is_open();
}

void JobTimeline::start_everywhere(bool mark_cycles) {
  {
    MutexLock lock(mutex_);
    ended_.clear();
  }
  events_.start(mark_cycles);
  inbox_.post(wire::TimelineSwitch{true, mark_cycles});
}

void JobTimeline::stop_everywhere() {
  events_.stop();
  inbox_.post(wire::TimelineSwitch{false, false});
  send_last();
}

void JobTimeline::on_switch(wire::TimelineSwitch to) {
  if (to.on) {
    events_.start(to.mark_cycles);
  } else {
    events_.stop();
    send_last();
  }
}

Deadline JobTimeline::send_if_due(TimePoint now) {
  if (!events_.enabled()) return Deadline::never();
  if (now >= next_sending_) {
    next_sending_ = now + kSendingPeriod;
    MutexLock lock(sending_);
    send_recorded();
  }
  return Deadline::at(next_sending_);
}

void JobTimeline::send_last() {
  MutexLock lock(sending_);
  send_recorded();
  inbox_.post(wire::TimelineChunk{rank_, true, {}});
}

void JobTimeline::send_recorded() {
  for (std::string text = events_.drain(); !text.empty(); text = events_.drain()) {
    inbox_.post(wire::TimelineChunk{rank_, false, std::move(text)});
  }
}

void JobTimeline::on_chunk(const wire::TimelineChunk& chunk) {
  MutexLock lock(mutex_);
  if (chunk.last) {
    ended_.insert(chunk.rank);
    changed_.notify_all();
  }
  if (!file_->is_open() || chunk.events.empty()) return;
  if (Status s = file_->append(chunk.events); !s.ok()) log(LogLevel::kError, s.message());
}

void JobTimeline::wait_for_last_chunks() {
  const Deadline deadline = Deadline::after(kLastChunksTimeout);
  MutexLock lock(mutex_);
  while (file_->is_open() && static_cast<int>(ended_.size()) < size_ && !deadline.passed() && !aborted_) {
    changed_.wait_until(mutex_, deadline);
  }
}

Status JobTimeline::close() {
  MutexLock lock(mutex_);
  return file_->close();
}

void JobTimeline::abort() {
  MutexLock lock(mutex_);
  aborted_ = true;
  changed_.notify_all();
}

}  // namespace roundelay::runtime
