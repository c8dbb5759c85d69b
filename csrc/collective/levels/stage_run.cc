#include "collective/levels/stage_run.h"

#include <algorithm>
#include <utility>

namespace roundelay::collective::levels {
namespace {

bool over(const StageRun::StepCalls& calls) {
  return std::ranges::all_of(calls, [](const StageRun::StepCall& call) { return call.pending == nullptr; });
}

}  // namespace

void StageRun::begin(StepCalls calls) {
  begun_[next().gathers ? kGathers : kScatters].push_back(std::move(calls));
  order_.advance();
}

Result<std::uint64_t> StageRun::test() {
  std::uint64_t ended = 0;
  for (const std::size_t kind : {kScatters, kGathers}) {
    for (StepCalls& calls : begun_[kind]) {
      for (StepCall& call : calls) {
        if (!call.pending) continue;
        const Result<bool> done = call.pending->test();
        if (!done.ok()) return done.status();
        if (*done) call.pending.reset();
      }
    }
    while (!begun_[kind].empty() && over(begun_[kind].front())) {
      begun_[kind].pop_front();
      ++ended_[kind];
      ++ended;
    }
  }
  return ended;
}

int StageRun::waiting_for() const {
  for (const std::deque<StepCalls>& steps : begun_) {
    for (const StepCalls& calls : steps) {
      for (const StepCall& call : calls) {
        const int member = call.pending ? call.pending->waiting_for() : -1;
        if (member >= 0) return call.group->ranks[static_cast<std::size_t>(member)];
      }
    }
  }
  return -1;
}

PendingCall* StageRun::first() const {
  for (const std::deque<StepCalls>& steps : begun_) {
    for (const StepCalls& calls : steps) {
      for (const StepCall& call : calls) {
        if (call.pending) return call.pending.get();
      }
    }
  }
  return nullptr;
}

}  // namespace roundelay::collective::levels
