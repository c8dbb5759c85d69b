#include "negotiate/merged_request.h"

#include <algorithm>

#include "negotiate/agreement_values.h"

namespace roundelay::negotiate {
namespace {

bool is_full(const wire::Report& report, std::size_t request) { return request < report.requests.size(); }

wire::CacheId id_of(const wire::Report& report, std::size_t request) {
  return is_full(report, request) ? wire::kNoCacheId : report.cached[request - report.requests.size()];
}

}  // namespace

MergedRequest::MergedRequest(const wire::Report& report, std::size_t request, TimePoint now)
    : id_(id_of(report, request)), since_(now) {
  if (is_full(report, request)) request_ = report.requests[request];
}

bool MergedRequest::same(const wire::Report& report, std::size_t request) const {
  if (id_ != wire::kNoCacheId) return id_of(report, request) == id_;
  return is_full(report, request) && report.requests[request] == request_;
}

bool MergedRequest::add(int from, const wire::MemberReport& said, std::size_t request) {
  if (std::ranges::find(heard_, from, &Heard::from) != heard_.end()) return false;
  Heard& heard = heard_.emplace_back(Heard{from, said.all_below, said.report.last_order});
  if (const ByteChange* change = change_in(said.report, request)) heard.change = *change;
  const auto others = others_in(said.others, request);
  heard.others.assign(others.begin(), others.end());
  return true;
}

std::uint64_t MergedRequest::least_last_order() const {
  return std::ranges::min_element(heard_, {}, &Heard::last_order)->last_order;
}

void MergedRequest::write_request(wire::Report& report, const ByteChange& change) const {
  std::size_t index = 0;
  if (id_ == wire::kNoCacheId) {
    index = report.requests.size();
    report.requests.push_back(request_);
  } else {
    report.cached.push_back(id_);
    index = report.requests.size() + report.cached.size() - 1;
  }
  if (!change.empty()) report.contributions.push_back({static_cast<std::uint32_t>(index), change});
}

void MergedRequest::write(wire::MemberReport& all, const ReportTree& tree) const {
  const ByteChange& common = heard_.front().change;
  write_request(all.report, common);
  const auto index = static_cast<std::uint32_t>(all.report.requests.size() + all.report.cached.size() - 1);
  const auto begin = std::ssize(all.others);
  for (const Heard& heard : heard_) {
    auto other = heard.others.begin();
    if (heard.change == common && heard.others.empty()) continue;
    const bool one = !heard.all_below;
    for (const int member : one ? std::span(&heard.from, 1) : tree.subtree(heard.from)) {
      const bool differs = other != heard.others.end() && other->member == member;
      const ByteChange& change = differs ? (other++)->change : heard.change;
      if (change != common) all.others.push_back({member, index, change});
    }
  }
  std::sort(all.others.begin() + begin, all.others.end(),
            [](const auto& a, const auto& b) { return a.member < b.member; });
}

void MergedRequest::write_each(LaneId lane, std::vector<wire::MemberReport>& out) const {
  for (const Heard& heard : heard_) {
    wire::MemberReport& one = out.emplace_back(wire::MemberReport{.member = heard.from});
    one.all_below = heard.all_below;
    one.report.lane = lane;
    one.report.last_order = heard.last_order;
    one.report.end_linger = ends_linger_;
    write_request(one.report, heard.change);
    for (const wire::MemberChange& other : heard.others)
      one.others.push_back({other.member, 0, other.change});
  }
}

}  // namespace roundelay::negotiate
