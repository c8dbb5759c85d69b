#include "channel/inproc/hub.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/contract/channel_contract.h"

namespace roundelay::testing {
namespace {

using channel::Delivery;
using channel::Hub;
using Link = Hub::Link;

Channels make_all(Hub& hub, int size) {
  Channels channels;
  for (int rank = 0; rank < size; ++rank) channels.push_back(hub.channel(rank));
  return channels;
}

TEST_CASE("channel contract: inproc") {
  check_channel([](int size) {
    Hub hub(size, Delivery::kAtOnce);
    return make_all(hub, size);
  });
}

TEST_CASE("inproc by hand: messages stay on their link until delivered, in order for each link") {
  Hub hub(3, Delivery::kByHand);
  auto ranks = make_all(hub, 3);
  REQUIRE(ranks[1]->send(0, to_bytes("a")).ok());
  REQUIRE(ranks[1]->send(0, to_bytes("b")).ok());
  REQUIRE(ranks[2]->send(0, to_bytes("c")).ok());
  REQUIRE(ranks[0]->send(0, to_bytes("d")).ok());
  CHECK_FALSE(ranks[0]->receive().has_value());
  CHECK(hub.pending_links() == std::vector<Link>{{0, 0}, {1, 0}, {2, 0}});

  CHECK(hub.deliver(2, 0));
  CHECK(hub.deliver(1, 0));
  CHECK_FALSE(hub.deliver(2, 0));
  CHECK(receive_one(*ranks[0]).bytes == to_bytes("c"));
  CHECK(receive_one(*ranks[0]).bytes == to_bytes("a"));
  CHECK_FALSE(ranks[0]->receive().has_value());
  CHECK(hub.pending_links() == std::vector<Link>{{0, 0}, {1, 0}});
  CHECK(hub.deliver(1, 0));
  CHECK(receive_one(*ranks[0]).bytes == to_bytes("b"));
}

TEST_CASE("inproc by hand: a dead rank's messages vanish and all others see it lost, once") {
  Hub hub(3, Delivery::kByHand);
  auto ranks = make_all(hub, 3);
  REQUIRE(ranks[1]->send(0, to_bytes("arrived")).ok());
  REQUIRE(hub.deliver(1, 0));
  REQUIRE(ranks[1]->send(0, to_bytes("on its way")).ok());
  REQUIRE(ranks[0]->send(1, to_bytes("too late")).ok());
  hub.disconnect(1);
  CHECK(hub.pending_links().empty());
  CHECK(receive_one(*ranks[0]).bytes == to_bytes("arrived"));
  CHECK(receive_one(*ranks[0]).lost.message() == "connection to rank 1 was lost: closed by the peer");
  CHECK(receive_one(*ranks[2]).from == 1);
  CHECK(ranks[0]->send(1, to_bytes("x")).code() == StatusCode::kAborted);
  CHECK(ranks[1]->send(0, to_bytes("x")).code() == StatusCode::kUnavailable);
  ranks[1].reset();
  CHECK(hub.pending_links().empty());
  CHECK_FALSE(ranks[0]->receive().has_value());
}

TEST_CASE("inproc by hand: who ends without a goodbye is seen after what it had sent") {
  Hub hub(2, Delivery::kByHand);
  auto ranks = make_all(hub, 2);
  REQUIRE(ranks[1]->send(0, to_bytes("last")).ok());
  ranks[1].reset();
  CHECK(ranks[0]->send(1, to_bytes("not known yet")).ok());
  REQUIRE(hub.deliver(1, 0));
  REQUIRE(hub.deliver(1, 0));
  CHECK_FALSE(hub.deliver(1, 0));
  CHECK(receive_one(*ranks[0]).bytes == to_bytes("last"));
  CHECK(receive_one(*ranks[0]).lost.code() == StatusCode::kAborted);
}

}  // namespace
}  // namespace roundelay::testing
