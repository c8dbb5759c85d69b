#include "lock/schedule_lock.h"

#include <algorithm>
#include <utility>

namespace roundelay::lock {

void ScheduleLock::begin(std::uint64_t number, const Operations& operations) {
  *this = ScheduleLock();
  number_ = number;
  std::size_t agreements = 0;
  for (const auto& members : operations) {
    Names& names = operations_.emplace_back();
    for (const wire::Submission& submission : members) {
      const auto [place, is_new] = names_.try_emplace(submission.request.name, Name{submission.request, {}});
      if (is_new && submission.request.operation == Operation::kAgreement)
        place->second.agreement.emplace(number, agreements++, submission);
      place->second.places.push_back(operations_.size() - 1);
      names.push_back(submission.request.name);
    }
  }
}

std::uint64_t ScheduleLock::position_of(const Name& name, std::uint64_t submission) const {
  return submission / name.places.size() * operations_.size() + name.places[submission % name.places.size()];
}

const ScheduleLock::Names& ScheduleLock::at(std::uint64_t position) const {
  return operations_[position % operations_.size()];
}

bool ScheduleLock::file(const wire::Request& request, std::string_view values) {
  if (!open()) return false;
  const auto found = names_.find(request.name);
  const bool expected = found != names_.end() && found->second.request == request;
  if (!expected || (found->second.agreement && !found->second.agreement->file(values))) {
    freeze();
    return false;
  }
  const std::uint64_t position = position_of(found->second, found->second.submissions++);
  const auto place = static_cast<std::size_t>(position - announced_);
  if (place >= unannounced_.size()) unannounced_.resize(place + 1, 0);
  ++unannounced_[place];
  ++blocked_;
  while (!unannounced_.empty() && unannounced_.front() == at(announced_).size()) {
    blocked_ -= unannounced_.front();
    unannounced_.pop_front();
    ++announced_;
  }
  return true;
}

std::optional<std::uint64_t> ScheduleLock::waits_at(const Name& name) const {
  if (name.submissions == 0) return std::nullopt;
  const std::uint64_t position = position_of(name, name.submissions - 1);
  return position < entered_ ? std::nullopt : std::optional(position);
}

bool ScheduleLock::filed(const std::string& name) const {
  const auto found = names_.find(name);
  return found != names_.end() && waits_at(found->second).has_value();
}

bool ScheduleLock::blocked(const std::string& name) const {
  const auto found = names_.find(name);
  if (found == names_.end()) return false;
  const auto position = waits_at(found->second);
  return position && *position >= announced_;
}

bool ScheduleLock::may_enter(std::uint64_t least) const {
  return active() && entered_ < std::min(least, announced_);
}

std::optional<ScheduleLock::Names> ScheduleLock::enter(std::uint64_t least) {
  if (!may_enter(least)) return std::nullopt;
  return at(entered_++);
}

LockedAgreement* ScheduleLock::agreement(const std::string& name) {
  const auto found = names_.find(name);
  return found == names_.end() || !found->second.agreement ? nullptr : &*found->second.agreement;
}

Deadline ScheduleLock::look(TimePoint now) {
  if (!open()) return Deadline::never();
  const bool moved = std::exchange(entered_at_look_, entered_) != entered_;
  if (entered_ == announced_ && blocked_ == 0) {
    waits_since_.reset();
    return moved ? Deadline::at(now + kFreezeTimeout) : Deadline::never();
  }
  if (moved || !waits_since_) waits_since_ = now;
  const Deadline end = Deadline::at(*waits_since_ + kFreezeTimeout);
  if (!end.passed(now)) return end;
  freeze();
  return Deadline::never();
}

std::vector<wire::Submission> ScheduleLock::end() {
  std::vector<std::pair<std::uint64_t, const Name*>> waiting;
  for (const auto& [key, name] : names_) {
    if (const auto position = waits_at(name)) waiting.emplace_back(*position, &name);
  }
  std::sort(waiting.begin(), waiting.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second->request.name < b.second->request.name;
  });
  std::vector<wire::Submission> submissions;
  submissions.reserve(waiting.size());
  for (const auto& [position, name] : waiting)
    submissions.emplace_back(name->request, name->agreement ? name->agreement->values() : std::string());
  *this = ScheduleLock();
  return submissions;
}

}  // namespace roundelay::lock
