// The order of operations on GPUs: rank 0's book, orders that wait for tickets, and the parts of
// coordinators and participants.
#include "gpu/gpu_sequencer.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "negotiate/gpu_order.h"
#include "negotiate/order_queue.h"
#include "negotiate/participant.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/coordinator_desk.h"

namespace roundelay::negotiate {
namespace {

using Enqueued = std::vector<std::uint64_t>;

LaneId lane_of(ProcessSetId set) { return {.process_set = set}; }

wire::Request on_gpu(const std::string& name) {
  wire::Request request = request_of(name);
  request.device = DeviceType::kGpu;
  return request;
}

wire::Order order_of(std::uint64_t sequence, std::vector<std::int32_t> on_gpu) {
  wire::Order order;
  order.lane = lane_of(3);
  order.sequence = sequence;
  if (!on_gpu.empty()) order.tickets = wire::OrderTickets{std::move(on_gpu), {}};
  return order;
}

TEST_CASE("each rank's tickets are a chain through all sets that it is in", "[tickets]") {
  GpuOrder order(4);
  REQUIRE(order.open(lane_of(1), {0, 2}));
  REQUIRE(order.open(lane_of(2), {1, 2, 3}));
  CHECK(*order.issue(lane_of(1), 1) == wire::Tickets{1, {0, 0}});
  CHECK(*order.issue(lane_of(2), 3) == wire::Tickets{2, {0, 1, 0}});
  CHECK(*order.issue(lane_of(1), 2) == wire::Tickets{5, {1, 4}});
  CHECK(*order.issue(lane_of(0), 1) == wire::Tickets{7, {6, 4, 6, 4}});
  CHECK(*order.issue(lane_of(2), 1) == wire::Tickets{8, {7, 7, 7}});
}

TEST_CASE("the GPU order knows only the ranks and sets that are there", "[tickets]") {
  GpuOrder order(2);
  CHECK_FALSE(order.open(lane_of(1), {0, 2}));
  CHECK_FALSE(order.open(lane_of(1), {-1}));
  CHECK_FALSE(order.issue(lane_of(1), 1));
  REQUIRE(order.open(lane_of(1), {0, 1}));
  CHECK(order.issue(lane_of(1), 1));
  order.close(lane_of(1));
  CHECK_FALSE(order.issue(lane_of(1), 1));
}

TEST_CASE("the world takes tickets while there are other sets, and once more after them", "[tickets]") {
  GpuOrder order(2);
  CHECK_FALSE(order.world_takes_tickets());
  REQUIRE(order.open(lane_of(1), {0, 1}));
  CHECK(order.world_takes_tickets());
  SECTION("a set that used no GPU leaves nothing") {
    order.close(lane_of(1));
    CHECK_FALSE(order.world_takes_tickets());
  }
  SECTION("a set's last operation may still wait when the set is gone from the book") {
    order.issue(lane_of(0), 1);
    order.issue(lane_of(1), 1);
    order.close(lane_of(1));
    CHECK(order.world_takes_tickets());
    order.issue(lane_of(0), 1);
    CHECK_FALSE(order.world_takes_tickets());
  }
  SECTION("the world was last") {
    order.issue(lane_of(1), 1);
    order.issue(lane_of(0), 1);
    CHECK(order.world_takes_tickets());
    order.close(lane_of(1));
    CHECK_FALSE(order.world_takes_tickets());
  }
}

TEST_CASE("an order waits for its tickets, and later ones wait in sequence", "[tickets]") {
  OrderQueue queue;
  queue.push(order_of(1, {}));
  queue.push(order_of(2, {0, 2}));
  queue.push(order_of(3, {}));
  queue.push(order_of(4, {1}));
  CHECK(*queue.take_request() == wire::TicketRequest{lane_of(3), 2, 2});
  CHECK_FALSE(queue.grant(4, {5, {0}}));  // order 4 has not asked
  CHECK(*queue.take_request() == wire::TicketRequest{lane_of(3), 4, 1});
  CHECK_FALSE(queue.take_request());
  CHECK(queue.pop()->sequence == 1);
  CHECK_FALSE(queue.pop());
  CHECK_FALSE(queue.grant(3, {9, {0}}));
  CHECK(queue.grant(4, {9, {8}}));
  CHECK_FALSE(queue.pop());
  CHECK(queue.grant(2, {7, {6}}));
  CHECK_FALSE(queue.grant(2, {7, {6}}));
  CHECK(queue.pop()->tickets == wire::OrderTickets{{0, 2}, {7, {6}}});
  CHECK(queue.pop()->sequence == 3);
  CHECK(queue.pop()->tickets == wire::OrderTickets{{1}, {9, {8}}});
  CHECK_FALSE(queue.waiting());
}

TEST_CASE("without tickets a lane ends in the first order that needs some", "[tickets]") {
  OrderQueue queue;
  queue.push(order_of(1, {}));
  queue.refuse();
  CHECK(*queue.pop() == order_of(1, {}));
  queue.push(order_of(2, {0}));
  queue.push(order_of(3, {}));
  queue.push(order_of(4, {0}));
  static_cast<void>(queue.take_request());
  REQUIRE(queue.grant(2, {1, {0}}));
  queue.refuse();
  CHECK(queue.pop()->tickets);  // the granted one is taken
  CHECK(*queue.pop() == order_of(3, {}));
  wire::Order last = order_of(4, {});
  last.shutdown_by = 0;
  CHECK(*queue.pop() == last);
  CHECK_FALSE(queue.waiting());
}

TEST_CASE("an order says which operations take a ticket: those on a GPU, when there is need", "[tickets]") {
  Desk desk(eager());
  desk.everyone({on_gpu("a"), request_of("b")});
  CHECK_FALSE(desk.order()->tickets);
  desk.coordinator.set_needs_tickets(true);
  desk.everyone({request_of("c"), on_gpu("d"), on_gpu("e"), request_of("f")});
  const auto mixed = desk.order();
  REQUIRE(mixed->operations.size() == 2);  // a fused operation is on one kind of device
  CHECK(mixed->tickets == wire::OrderTickets{{1}, {}});
  desk.everyone({request_of("b")});
  CHECK_FALSE(desk.order()->tickets);
}

// Returns how many orders come until one locks a schedule; gives up after `most`.
int orders_until_lock(Desk& desk, const wire::Request& request, int most) {
  for (int given = 1; given <= most; ++given) {
    desk.everyone({request});
    if (desk.order()->lock) return given;
  }
  return 0;
}

TEST_CASE("operations with tickets are in no schedule", "[tickets]") {
  CoordinatorOptions options = eager();
  options.schedule_lock = true;
  Desk desk(options);
  SECTION("not on a GPU") {
    desk.coordinator.set_needs_tickets(true);
    CHECK(orders_until_lock(desk, request_of("a"), 10) > 0);
  }
  SECTION("on a GPU") { CHECK(orders_until_lock(desk, on_gpu("a"), 10) > 0); }
  SECTION("on a GPU that others use") {
    desk.coordinator.set_needs_tickets(true);
    CHECK(orders_until_lock(desk, on_gpu("a"), 50) == 0);
  }
}

TEST_CASE("what was seen before there was need of tickets is in no schedule either", "[tickets]") {
  CoordinatorOptions options = eager();
  options.schedule_lock = true;
  Desk desk(options);
  // One step with names, one with ids, then two and a half periods of two operations.
  for (int step = 0; step < 3; ++step) {
    desk.everyone({on_gpu("a")});
    REQUIRE_FALSE(desk.order()->lock);
    desk.everyone({request_of("b")});
    REQUIRE_FALSE(desk.order()->lock);
  }
  desk.everyone({on_gpu("a")});
  REQUIRE_FALSE(desk.order()->lock);
  const bool need = GENERATE(false, true);
  desk.coordinator.set_needs_tickets(need);
  desk.everyone({request_of("b")});
  CHECK(desk.order()->lock.has_value() == !need);
}

TEST_CASE("a rank finds its own tickets, also where it skips the operation", "[tickets]") {
  Participant participant(LaneId{}, 1);
  participant.submit(request_of("a"));
  participant.submit(on_gpu("b"));
  wire::Request join = request_of("join", {});
  join.operation = Operation::kJoin;
  join.cacheable = false;
  participant.submit(join);
  REQUIRE(participant.take_report());
  wire::Order order;
  order.sequence = 1;
  order.operations = {{{{1, "a"}}, {}, {}}, {{{2, "b"}}, {}, {}}, {{{0, "c"}}, {}, {1}}};
  order.tickets = wire::OrderTickets{{1, 2}, {8, {7, 3}}};
  SECTION("tickets follow one another") {
    const auto applied = participant.apply(order);
    REQUIRE(applied.ok());
    CHECK_FALSE(applied->operations[0].ticket);
    CHECK(applied->operations[1].ticket == GpuTicket{8, 3});
    CHECK(applied->operations[2].ticket == GpuTicket{9, 8});
    CHECK(applied->operations[2].skipped);
  }
  SECTION("an operation that is not there") {
    order.tickets->operations.push_back(3);
    CHECK(contains(participant.apply(order).status().message(),
                   "gives a ticket to operation 3, but has only 3"));
  }
  SECTION("tickets that are not for this rank") {
    order.tickets->tickets.previous.pop_back();
    CHECK(contains(participant.apply(order).status().message(), "not this rank's"));
  }
}

TEST_CASE("a lane that was told to wait is called when its ticket may be next, and no other", "[tickets]") {
  int calls = 0;
  gpu::GpuSequencer sequencer([&] { ++calls; });
  CHECK(sequencer.may_go(0));
  CHECK_FALSE(sequencer.may_go(2));
  sequencer.gone(1);
  CHECK(calls == 1);
  CHECK_FALSE(sequencer.may_go(2));
  sequencer.gone(2);
  CHECK(calls == 2);
  CHECK(sequencer.may_go(2));
  sequencer.gone(7);
  CHECK(calls == 2);
}

// Each thread is a lane that sleeps until it is called. If it misses a call, it never ends.
TEST_CASE("threads follow their tickets in order and miss no call", "[tickets]") {
  constexpr std::uint64_t kThreads = 3, kRounds = 2000;
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  std::atomic<int> calls{0};
  std::atomic<bool> missed{false};
  gpu::GpuSequencer sequencer([&] { ++calls; });
  Enqueued order;
  std::vector<std::thread> lanes;
  for (std::uint64_t first = 1; first <= kThreads; ++first) {
    lanes.emplace_back([&, first] {
      for (std::uint64_t ticket = first; ticket <= kThreads * kRounds && !missed; ticket += kThreads) {
        for (int seen = calls; !sequencer.may_go(ticket - 1) && !missed; seen = calls) {
          while (calls == seen && !missed) {
            std::this_thread::yield();
            if (deadline.passed()) missed = true;
          }
        }
        if (!missed) order.push_back(ticket);
        sequencer.gone(ticket);
      }
    });
  }
  for (std::thread& lane : lanes) lane.join();
  REQUIRE_FALSE(missed);
  REQUIRE(order.size() == kThreads * kRounds);
  for (std::size_t i = 0; i < order.size(); ++i) REQUIRE(order[i] == i + 1);
}

}  // namespace
}  // namespace roundelay::negotiate
