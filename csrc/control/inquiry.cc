#include "control/inquiry.h"

#include <unistd.h>

#include <map>
#include <utility>

#include "platform/process.h"

namespace roundelay::control {
namespace {

std::string seen_from_outside() { return platform::describe_process(::getpid()); }

}  // namespace

struct Inquiry::Open {
  explicit Open(Answer to) : answer(std::move(to)) {}

  void tell_all(const std::string& place) EXCLUDES(mutex) {
    MutexLock lock(mutex);
    for (const auto& [rank, until] : asked) answer(rank, seen_from_outside() + "; " + place);
    asked.clear();
  }

  Mutex mutex;
  Answer answer GUARDED_BY(mutex);
  std::map<int, Deadline> asked GUARDED_BY(mutex);  // ranks that wait, and until when
};

Inquiry::Inquiry(std::shared_ptr<Whereabouts> whereabouts, Answer answer)
    : whereabouts_(std::move(whereabouts)), open_(std::make_shared<Open>(std::move(answer))) {}

Inquiry::~Inquiry() {
  MutexLock lock(open_->mutex);
  open_->asked.clear();  // a late answer finds nobody to send to
}

void Inquiry::asked(int by_rank, TimePoint now) {
  {
    MutexLock lock(open_->mutex);
    if (!whereabouts_) return open_->answer(by_rank, seen_from_outside());
    open_->asked.emplace(by_rank, Deadline::at(now + kTimeout));
  }
  whereabouts_->ask([open = open_](const std::string& place) { open->tell_all(place); });
}

Deadline Inquiry::look(TimePoint now) {
  MutexLock lock(open_->mutex);
  Deadline next = Deadline::never();
  for (auto one = open_->asked.begin(); one != open_->asked.end();) {
    const auto& [rank, until] = *one;
    if (until.passed(now)) {
      open_->answer(
          rank, seen_from_outside() + "; Python cannot be looked at, as a thread keeps its lock (the GIL)");
      one = open_->asked.erase(one);
    } else {
      next = next.sooner(until);
      ++one;
    }
  }
  return next;
}

}  // namespace roundelay::control
