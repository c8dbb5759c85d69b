#include "negotiate/agreement_values.h"

#include <algorithm>

namespace roundelay::negotiate {

ReportedValues values_in(const wire::Report& report, std::size_t request, std::int32_t rank) {
  ReportedValues values{rank, request < report.requests.size()};
  const auto& all = report.contributions;
  const auto found = std::lower_bound(all.begin(), all.end(), request,
                                      [](const wire::Contribution& contribution, std::size_t wanted) {
                                        return contribution.request < wanted;
                                      });
  if (found != all.end() && found->request == request) values.change = found->change;
  return values;
}

Agreed merge(const wire::Request& request, const std::vector<ReportedValues>& members,
             const std::string& base) {
  Merger merger(request.fields, request.root);
  std::string values;
  for (const ReportedValues& member : members) {
    if (member.rank < 0) continue;
    values = base;
    if (member.in_full) values.assign(base.size(), '\0');
    apply_change(member.change, values);
    merger.add(member.rank, values);
  }
  return merger.finish();
}

}  // namespace roundelay::negotiate
