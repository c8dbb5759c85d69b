// The coordinator's absence clock: who has not submitted what the others wait for.
#include <algorithm>

#include "negotiate/coordinator.h"

namespace roundelay::negotiate {
namespace {

constexpr std::size_t kNamesShown = 6;

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

std::string Coordinator::members_where(const Slot& slot, bool reported) const {
  std::string text;
  int count = 0;
  for (int member = 0; member < group_.size(); ++member) {
    if (slot.reported[static_cast<std::size_t>(member)] != reported) continue;
    text += (count++ == 0 ? "" : ", ") + std::to_string(group_.ranks[static_cast<std::size_t>(member)]);
  }
  return (count == 1 ? "rank " : "ranks ") + text;
}

std::vector<std::string> Coordinator::take_stall_warnings(TimePoint now) {
  std::vector<std::string> lines;
  if (options_.stall_warning <= Duration{0}) return lines;
  std::map<std::string, std::vector<std::string>> names_by_missing;  // ordered: the same text from run to run
  std::map<std::string, Duration> longest;
  for (auto& [name, slot] : table_) {
    if (now - slot.warned < options_.stall_warning) continue;
    slot.warned = now;
    const std::string ranks = members_where(slot, false);
    names_by_missing[ranks].push_back(name);
    longest[ranks] = std::max(longest[ranks], now - slot.first_seen);
  }
  for (auto& [ranks, names] : names_by_missing) {
    std::sort(names.begin(), names.end());
    lines.push_back(ranks + " did not submit " + list(names) + ", which other ranks wait for since " +
                    seconds(longest[ranks]) + ": slow, stopped, or on another path of the program");
  }
  return lines;
}

void Coordinator::abort_stalled(TimePoint now) {
  if (options_.stall_abort <= Duration{0}) return;
  std::vector<std::string> overdue;
  for (const auto& [name, slot] : table_) {
    if (now - slot.first_seen >= options_.stall_abort) overdue.push_back(name);
  }
  std::sort(overdue.begin(), overdue.end());
  for (const std::string& name : overdue) {
    const auto found = table_.find(name);
    const Slot slot = std::move(found->second);
    table_.erase(found);
    fail(slot.request, StatusCode::kMismatch,
         std::string(name_of(slot.request.operation)) + " of '" + name + "' was given up: " +
             members_where(slot, false) + " did not submit it within " + seconds(options_.stall_abort) +
             " (ROUNDELAY_STALL_SHUTDOWN_TIME_SECONDS) after the first of " + members_where(slot, true));
  }
}

}  // namespace roundelay::negotiate
