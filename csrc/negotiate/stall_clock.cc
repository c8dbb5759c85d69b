#include "negotiate/stall_clock.h"

#include <algorithm>
#include <map>

#include "wire/describe.h"

namespace roundelay::negotiate {
namespace {

constexpr std::size_t kNamesShown = 6;
constexpr int kTogether = 10;  // one line names all requests due within this part of the warning time

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kNamesShown); ++i) {
    text += (i > 0 ? ", '" : "'") + names[i] + "'";
  }
  if (names.size() > kNamesShown) text += " and " + std::to_string(names.size() - kNamesShown) + " more";
  return text;
}

}  // namespace

void StallClock::on_opened(const RequestTable& table, const ReportedRequest& reported) {
  due_ = table.size() == 1 ? due_of(reported) : std::min(due_, due_of(reported));
}

Deadline StallClock::next_due(const RequestTable& table) const {
  return table.empty() ? Deadline::never() : Deadline::at(due_);
}

TimePoint StallClock::due_of(const ReportedRequest& reported) const {
  TimePoint due = TimePoint::max();
  if (limits_.warning > Duration{0}) due = reported.warned + limits_.warning;
  if (limits_.abort > Duration{0}) due = std::min(due, reported.first_seen + limits_.abort);
  return due;
}

bool StallClock::warns_of(const ReportedRequest& reported, Duration age, TimePoint now) const {
  return limits_.warning > Duration{0} && now - reported.warned >= age;
}

std::vector<int> StallClock::reporters_of(const ReportedRequest& reported) const {
  std::vector<int> ranks;
  for (std::size_t member = 0; member < reported.by_member.size(); ++member) {
    if (reported.by_member[member] != 0) ranks.push_back(group_.ranks[member]);
  }
  return ranks;
}

// Returns true if each of the two requests is reported by a rank that the other one waits for.
bool StallClock::crossed(const ReportedRequest& one, const ReportedRequest& other) const {
  const auto owes = [&](const ReportedRequest& has, const ReportedRequest& lacks) {
    for (std::size_t member = 0; member < has.by_member.size(); ++member) {
      const bool lacking = lacks.by_member[member] == 0 && !joins_.has_joined(static_cast<int>(member));
      if (has.by_member[member] != 0 && lacking) return true;
    }
    return false;
  };
  return owes(one, other) && owes(other, one);
}

// Ranks that wait for each other's operations may mean the same operation: a hint that says so, or "".
std::string StallClock::crossed_with(const RequestTable& table, const ReportedRequest& reported) const {
  const RequestTable::Requests::value_type* found = nullptr;
  for (const auto& other : table.all()) {
    const bool sooner = found == nullptr || other.first < found->first;  // the same text from run to run
    if (sooner && crossed(reported, other.second)) found = &other;
  }
  if (found == nullptr) return {};
  return "; meanwhile " + wire::describe_ranks(reporters_of(found->second)) + " submitted '" + found->first +
         "', which " + wire::describe_ranks(joins_.awaited_by(found->second)) +
         " did not: do names differ, or the order of calls?";
}

std::vector<std::string> StallClock::take_warnings(RequestTable& table, TimePoint now, std::set<int>& late) {
  if (table.empty() || now < due_) return {};
  std::map<std::string, std::vector<std::string>> names_by_missing;  // ordered: the same text from run to run
  std::map<std::string, Duration> longest;
  const auto& requests = table.all();
  const bool some = std::any_of(requests.begin(), requests.end(), [&](const auto& reported) {
    return warns_of(reported.second, limits_.warning, now);
  });
  due_ = TimePoint::max();
  for (auto& [name, reported] : table.all()) {
    if (some && warns_of(reported, limits_.warning - limits_.warning / kTogether, now)) {
      reported.warned = now;
      const std::vector<int> awaited = joins_.awaited_by(reported);
      late.insert(awaited.begin(), awaited.end());
      const std::string ranks = wire::describe_ranks(awaited);
      names_by_missing[ranks].push_back(name);
      longest[ranks] = std::max(longest[ranks], now - reported.first_seen);
    }
    due_ = std::min(due_, due_of(reported));
  }
  std::vector<std::string> lines;
  for (auto& [ranks, names] : names_by_missing) {
    std::sort(names.begin(), names.end());
    lines.push_back(ranks + " did not submit " + list(names) + ", for which other ranks have waited " +
                    seconds_text(longest[ranks]) + ": slow, stopped, or on another path of the program" +
                    crossed_with(table, requests.at(names.front())));
  }
  return lines;
}

std::vector<std::string> StallClock::overdue(const RequestTable& table, TimePoint now) const {
  std::vector<std::string> names;
  if (limits_.abort <= Duration{0} || table.empty() || now < due_) return names;
  for (const auto& [name, reported] : table.all()) {
    // A join is overdue only if its rank is late with nothing else.
    if (now - reported.first_seen >= limits_.abort && (!joins_.is_join(reported) || table.size() == 1))
      names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string StallClock::abort_text(const ReportedRequest& reported) const {
  return wire::describe(reported.request) +
         " was given up: " + wire::describe_ranks(joins_.awaited_by(reported)) +
         " did not submit it within " + seconds_text(limits_.abort) +
         " (ROUNDELAY_STALL_SHUTDOWN_TIME_SECONDS) after the first of " +
         wire::describe_ranks(reporters_of(reported));
}

}  // namespace roundelay::negotiate
