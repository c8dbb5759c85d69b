#include "negotiate/agreement_values.h"

#include <algorithm>

namespace roundelay::negotiate {

const ByteChange* change_in(const wire::Report& report, std::size_t request) {
  const auto& all = report.contributions;
  const auto found = std::ranges::lower_bound(all, request, {}, &wire::Contribution::request);
  return found != all.end() && found->request == request ? &found->change : nullptr;
}

std::span<const wire::MemberChange> others_in(std::span<const wire::MemberChange> others,
                                              std::size_t request) {
  const auto begin = std::ranges::lower_bound(others, request, {}, &wire::MemberChange::request);
  const auto end = std::ranges::upper_bound(others, request, {}, &wire::MemberChange::request);
  return {begin, end};
}

ReportedValues values_of(const Reporters& who, int member, std::size_t request, std::int32_t rank) {
  ReportedValues values{rank, request < who.report.requests.size()};
  const auto others = others_in(who.others, request);
  const auto other = std::ranges::lower_bound(others, member, {}, &wire::MemberChange::member);
  if (other != others.end() && other->member == member) {
    values.change = other->change;
  } else if (const ByteChange* const change = change_in(who.report, request)) {
    values.change = *change;
  }
  return values;
}

bool values_fit(const Reporters& who, std::size_t request, std::size_t bytes) {
  const ByteChange* const change = change_in(who.report, request);
  return (change == nullptr || fits(*change, bytes)) &&
         std::ranges::all_of(others_in(who.others, request),
                             [bytes](const wire::MemberChange& other) { return fits(other.change, bytes); });
}

// The same values once more change only a sum.
Agreed merge(const wire::Request& request, const std::vector<ReportedValues>& members,
             const std::string& base) {
  Merger merger(request.fields, request.root);
  const bool sums =
      std::ranges::find(request.fields, Merge::kSum, &AgreementField::merge) != request.fields.end();
  const ReportedValues* last = nullptr;
  std::string values;
  for (const ReportedValues& member : members) {
    if (member.rank < 0) continue;
    const bool same = last != nullptr && last->in_full == member.in_full && last->change == member.change;
    if (same && !sums && member.rank != request.root) continue;
    last = &member;
    values = base;
    if (member.in_full) values.assign(base.size(), '\0');
    apply_change(member.change, values);
    merger.add(member.rank, values);
  }
  return merger.finish();
}

}  // namespace roundelay::negotiate
