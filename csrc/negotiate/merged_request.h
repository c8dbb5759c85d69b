// A request that members below a leader have reported alike. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "negotiate/report_tree.h"
#include "wire/messages.h"

namespace roundelay::negotiate {

class MergedRequest {
 public:
  // `report`, whose request number `request` it is, came at `now`.
  MergedRequest(const wire::Report& report, std::size_t request, TimePoint now);

  // Returns whether a report has the same request: under the same id, or with the same contents.
  [[nodiscard]] bool same(const wire::Report& report, std::size_t request) const;
  // Adds the report that `from` has sent. False: it has sent one already.
  bool add(int from, const wire::MemberReport& said, std::size_t request);
  // Records that one of those who have reported it asks for the end of the linger.
  void end_linger() { ends_linger_ = true; }

  [[nodiscard]] std::size_t reporters() const { return heard_.size(); }
  [[nodiscard]] bool ends_linger() const { return ends_linger_; }
  [[nodiscard]] std::uint64_t least_last_order() const;
  [[nodiscard]] wire::CacheId id() const { return id_; }  // kNoCacheId: it was reported in full
  [[nodiscard]] TimePoint since() const { return since_; }

  // Writes it into a report of all below. By ascending ids, those without one first.
  void write(wire::MemberReport& all, const ReportTree& tree) const;
  // Appends the reports as they came, for this request alone.
  void write_each(LaneId lane, std::vector<wire::MemberReport>& out) const;

 private:
  // What has come from one reporter.
  struct Heard {
    int from = 0;
    bool all_below = false;
    std::uint64_t last_order = 0;
    ByteChange change{};
    std::vector<wire::MemberChange> others{};
  };

  void write_request(wire::Report& report, const ByteChange& change) const;

  wire::CacheId id_ = wire::kNoCacheId;
  wire::Request request_;  // if it has no id
  TimePoint since_;
  bool ends_linger_ = false;
  std::vector<Heard> heard_;
};

}  // namespace roundelay::negotiate
