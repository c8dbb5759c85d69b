// Which receive takes which message: by examples, and in random orders beside a model that looks at all
// pairs.
#include "collective/point_to_point/matcher.h"

#include <algorithm>
#include <random>

#include "tests/cpp/catch.h"
#include "tests/cpp/effort.h"

namespace roundelay::collective {
namespace {

Offer offer_of(MessageId message, std::size_t payload) { return {message, payload, true, Bytes(payload)}; }

TEST_CASE("receives take messages of their peer and tag in the order of arrival", "[matcher]") {
  Matcher matcher;
  matcher.add_offer(1, 7, offer_of(10, 3));
  matcher.add_offer(2, 7, offer_of(20, 4));
  matcher.add_offer(1, 8, offer_of(11, 0));
  matcher.add_offer(1, 7, offer_of(12, 5));
  CHECK(matcher.payload_bytes() == 12);
  CHECK_FALSE(matcher.take_offer(3, 7));
  CHECK_FALSE(matcher.take_offer(2, 8));
  CHECK(matcher.take_offer(2, 7)->second.message == 20);
  const auto first = matcher.take_offer(kAnyPeer, 7);
  CHECK((first->first == 1 && first->second.message == 10));
  CHECK(matcher.take_offer(1, 7)->second.message == 12);
  CHECK(matcher.payload_bytes() == 0);
  CHECK(matcher.take_offer(kAnyPeer, 8)->second.message == 11);
  CHECK_FALSE(matcher.take_offer(kAnyPeer, 8));
}

TEST_CASE("receives of one peer and of any compete in the order of posting", "[matcher]") {
  Matcher matcher;
  matcher.add_receive(1, 7, 100);
  matcher.add_receive(kAnyPeer, 7, 101);
  matcher.add_receive(2, 7, 102);
  matcher.add_receive(1, 7, 103);
  CHECK_FALSE(matcher.take_receive(1, 8));
  CHECK(*matcher.take_receive(2, 7) == 101);
  CHECK(*matcher.take_receive(2, 7) == 102);
  CHECK(*matcher.take_receive(1, 7) == 100);
  matcher.add_receive(kAnyPeer, 9, 104);
  CHECK(matcher.take_receives(1) == std::vector<MessageId>{103});
  CHECK(matcher.take_receives(kAnyPeer) == std::vector<MessageId>{104});
  CHECK_FALSE(matcher.take_receive(1, 7));
}

// Keeps everything in two lists in the order in which it came, and looks through them.
struct Model {
  struct Waits {
    int peer;
    MessageTag tag;
    MessageId id;
  };
  std::vector<Waits> receives, offers;

  static std::optional<MessageId> take(std::vector<Waits>& from, MessageTag tag, auto fits) {
    const auto at = std::find_if(from.begin(), from.end(),
                                 [&](const Waits& one) { return one.tag == tag && fits(one.peer); });
    if (at == from.end()) return std::nullopt;
    const MessageId id = at->id;
    from.erase(at);
    return id;
  }
};

TEST_CASE("random posts and arrivals match as in the model", "[matcher]") {
  for (unsigned seed = 0; seed < testing::seeds(200U); ++seed) {
    std::mt19937 random(seed);
    Matcher matcher;
    Model model;
    for (MessageId id = 0; id < 300; ++id) {
      const int peer = static_cast<int>(random() % 4);
      const auto tag = static_cast<MessageTag>(random() % 3);
      if (random() % 2 == 0) {
        const auto want =
            Model::take(model.receives, tag, [&](int at) { return at == kAnyPeer || at == peer; });
        REQUIRE(matcher.take_receive(peer, tag) == want);
        if (want) continue;
        model.offers.push_back({peer, tag, id});
        matcher.add_offer(peer, tag, {.message = id, .bytes = 0});
      } else {
        const int from = random() % 3 == 0 ? kAnyPeer : peer;
        const auto want =
            Model::take(model.offers, tag, [&](int at) { return from == kAnyPeer || at == from; });
        const auto got = matcher.take_offer(from, tag);
        REQUIRE(got.has_value() == want.has_value());
        if (want) {
          REQUIRE(got->second.message == *want);
          continue;
        }
        model.receives.push_back({from, tag, id});
        matcher.add_receive(from, tag, id);
      }
    }
  }
}

}  // namespace
}  // namespace roundelay::collective
