// Messages about tickets that only a lane's coordinator may send.
#include "control/ticket_control.h"

#include <string>
#include <utility>

#include "channel/inproc/hub.h"
#include "tests/cpp/catch.h"

namespace roundelay::control {
namespace {

// Remembers the cause of an abort.
class Cause final : public NegotiationSink {
 public:
  void abort(const Status& cause) override { text = cause.message(); }

  void ordered(LaneId, std::uint64_t) override {}
  void execute(LaneId, std::uint64_t, negotiate::OrderedOperation) override {}
  void fail_submission(LaneId, negotiate::FailedSubmission) override {}
  void locked(LaneId, std::uint64_t) override {}
  void unlock(LaneId, std::uint64_t) override {}
  void joined(LaneId, const wire::Joined&) override {}
  void removed(LaneId) override {}
  void rank_left(LaneId, int) override {}
  void ready(LaneId, const negotiate::ReadyNote&) override {}
  void clock_offset(std::int64_t) override {}
  void timeline_chunk(wire::TimelineChunk) override {}
  void timeline_switch(wire::TimelineSwitch) override {}
  void state_asked(int) override {}

  std::string text;
};

// Rank 0 of three.
struct RankZero {
  channel::Hub hub{3, channel::Delivery::kByHand};
  std::unique_ptr<channel::Channel> channel = hub.channel(0);
  LaneControls lanes;
  Cause cause;
  ControlLink link{*channel, 0, 3, lanes, cause};
  TicketControl tickets{link, lanes, 3};
};

TEST_CASE("only its coordinator opens and closes a lane of tickets", "[tickets]") {
  const LaneId lane{.process_set = 4};
  RankZero rank;
  SECTION("another rank opens") { rank.tickets.on_members(2, {lane, {1, 2}}); }
  SECTION("another rank closes") {
    rank.tickets.on_members(1, {lane, {1, 2}});
    REQUIRE_FALSE(rank.link.aborted());
    rank.tickets.on_members(2, {lane, {}});
  }
  SECTION("a rank closes what is not open") { rank.tickets.on_members(2, {lane, {}}); }
  CHECK(rank.link.aborted());
  CHECK(rank.cause.text.starts_with("rank 2 broke the protocol of tickets on GPUs"));
}

TEST_CASE("the coordinator of a lane of tickets opens it and closes it", "[tickets]") {
  const LaneId lane{.process_set = 4};
  RankZero rank;
  rank.tickets.on_members(1, {lane, {1, 2}});
  rank.tickets.on_members(1, {lane, {}});
  CHECK_FALSE(rank.link.aborted());
}

}  // namespace
}  // namespace roundelay::control
