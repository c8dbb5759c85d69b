// The coordinator's absence clock: who has not submitted what the others wait for.
#include <algorithm>

#include "negotiate/coordinator.h"
#include "wire/describe.h"

namespace roundelay::negotiate {
namespace {

constexpr std::size_t kNamesShown = 6;
constexpr int kTogether = 10;  // what is due within a tenth of the warning time is named in the same line

std::string seconds(Duration d) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(d).count()) + " s";
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kNamesShown); ++i) {
    text += (i > 0 ? ", '" : "'") + names[i] + "'";
  }
  if (names.size() > kNamesShown) text += " and " + std::to_string(names.size() - kNamesShown) + " more";
  return text;
}

}  // namespace

std::vector<int> Coordinator::ranks_where(const Slot& slot, bool reported) const {
  std::vector<int> ranks;
  for (int member = 0; member < group_.size(); ++member) {
    if (slot.reported[static_cast<std::size_t>(member)] != reported) continue;
    if (!reported && has_joined(member)) continue;  // nobody waits for it
    ranks.push_back(rank_of(member));
  }
  return ranks;
}

std::string Coordinator::members_where(const Slot& slot, bool reported) const {
  std::string text;
  const std::vector<int> ranks = ranks_where(slot, reported);
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

// Is each of them submitted by a rank that the other one waits for?
bool Coordinator::crossed(const Slot& one, const Slot& other) const {
  const auto owes = [&](const Slot& has, const Slot& lacks) {
    for (std::size_t member = 0; member < has.reported.size(); ++member) {
      const bool lacking = !lacks.reported[member] && !has_joined(static_cast<int>(member));
      if (has.reported[member] && lacking) return true;
    }
    return false;
  };
  return owes(one, other) && owes(other, one);
}

// Ranks that wait for each other's operations may mean the same one: what to say of that, or "".
std::string Coordinator::crossed_with(const Slot& slot) const {
  const Slots::value_type* found = nullptr;
  for (const auto& entry : table_) {
    const bool sooner = found == nullptr || entry.first < found->first;  // the same text from run to run
    if (sooner && crossed(slot, entry.second)) found = &entry;
  }
  if (found == nullptr) return {};
  return "; meanwhile " + members_where(found->second, true) + " submitted '" + found->first + "', which " +
         members_where(found->second, false) + " did not: are the names different?";
}

TimePoint Coordinator::stall_due(const Slot& slot) const {
  TimePoint due = TimePoint::max();
  if (options_.stall_warning > Duration{0}) due = slot.warned + options_.stall_warning;
  if (options_.stall_abort > Duration{0}) due = std::min(due, slot.first_seen + options_.stall_abort);
  return due;
}

// Who has not joined is not late with it while it works.
void Coordinator::restart_join_clock(TimePoint now) {
  if (join_ != nullptr) join_->first_seen = join_->warned = now;
}

std::vector<std::string> Coordinator::take_stall_warnings(TimePoint now) {
  std::vector<std::string> lines;
  warn_of_silence(now, lines);
  if (table_.empty() || now < stall_due_) return lines;
  std::map<std::string, std::vector<std::string>> names_by_missing;  // ordered: the same text from run to run
  std::map<std::string, Duration> longest;
  const auto overdue = [&](const Slot& slot, Duration age) {
    return options_.stall_warning > Duration{0} && now - slot.warned >= age;
  };
  const bool some = std::any_of(table_.begin(), table_.end(), [&](const auto& entry) {
    return overdue(entry.second, options_.stall_warning);
  });
  stall_due_ = TimePoint::max();
  for (auto& [name, slot] : table_) {
    if (some && overdue(slot, options_.stall_warning - options_.stall_warning / kTogether)) {
      slot.warned = now;
      for (const int rank : ranks_where(slot, false)) late_.insert(rank);
      const std::string ranks = members_where(slot, false);
      names_by_missing[ranks].push_back(name);
      longest[ranks] = std::max(longest[ranks], now - slot.first_seen);
    }
    stall_due_ = std::min(stall_due_, stall_due(slot));
  }
  for (auto& [ranks, names] : names_by_missing) {
    std::sort(names.begin(), names.end());
    lines.push_back(ranks + " did not submit " + list(names) + ", which other ranks wait for since " +
                    seconds(longest[ranks]) + ": slow, stopped, or on another path of the program" +
                    crossed_with(table_.at(names.front())));
  }
  return lines;
}

void Coordinator::abort_stalled(TimePoint now) {
  if (options_.stall_abort <= Duration{0} || table_.empty() || now < stall_due_) return;
  std::vector<std::string> overdue;
  for (const auto& [name, slot] : table_) {
    // A join is over when its rank is late with nothing else.
    if (now - slot.first_seen >= options_.stall_abort && (&slot != join_ || table_.size() == 1))
      overdue.push_back(name);
  }
  std::sort(overdue.begin(), overdue.end());
  for (const std::string& name : overdue) {
    const auto found = table_.find(name);
    const std::string missing = members_where(found->second, false);
    const Slot slot = take_slot(found);
    std::string text = wire::describe(slot.request);
    text.append(" was given up: ").append(missing);
    text.append(" did not submit it within ").append(seconds(options_.stall_abort));
    text.append(" (ROUNDELAY_STALL_SHUTDOWN_TIME_SECONDS) after the first of ");
    fail(slot.request, text.append(members_where(slot, true)), now);
  }
}

}  // namespace roundelay::negotiate
