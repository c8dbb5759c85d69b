// Decides which receive takes which message. Pure: no I/O, no threads.
//
// The rules are MPI's. A receive names a tag and a peer, or kAnyPeer. Of the messages that fit, it takes the
// one that arrived first; of the receives that fit, the one that was posted first takes the message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/bytes.h"

namespace roundelay::collective {

// Numbers a message of this member, sent or received. The number is used again when the message is over.
using MessageId = std::uint32_t;
using MessageTag = std::uint32_t;

inline constexpr int kAnyPeer = -1;

// A message that a peer has to send.
struct Offer {
  MessageId message = 0;      // the peer's number
  std::uint64_t bytes = 0;    // the message's size
  bool with_payload = false;  // the message itself has come with the offer
  Bytes payload{};            // that message, while it waits
};

// The items of one kind that wait, in the order in which they came.
template <typename Item>
class Waiting {
 public:
  void add(int peer, MessageTag tag, Item item) {
    items_.emplace(Place{tag, peer, came_++}, std::move(item));
  }
  // Takes the earliest item of this tag that came for `peer` or `other`. Returns nothing if there is none.
  std::optional<std::pair<int, Item>> take(MessageTag tag, int peer, int other) {
    return take_at(earlier(first(tag, peer), first(tag, other)));
  }
  // Takes the earliest item of this tag.
  std::optional<std::pair<int, Item>> take(MessageTag tag) {
    auto best = items_.end();
    auto at = items_.lower_bound({tag, kAnyPeer, 0});
    while (at != items_.end() && std::get<MessageTag>(at->first) == tag) {
      best = earlier(best, at);
      at = items_.lower_bound({tag, std::get<int>(at->first) + 1, 0});
    }
    return take_at(best);
  }
  // Takes all items of this peer.
  std::vector<Item> take_all(int peer) {
    std::vector<Item> all;
    for (auto at = items_.begin(); at != items_.end();) {
      if (std::get<int>(at->first) != peer) {
        ++at;
        continue;
      }
      all.push_back(std::move(at->second));
      at = items_.erase(at);
    }
    return all;
  }

 private:
  using Place = std::tuple<MessageTag, int, std::uint64_t>;  // tag, peer, number of items that came before
  using Items = std::map<Place, Item>;
  using At = typename Items::iterator;

  At first(MessageTag tag, int peer) {
    const At at = items_.lower_bound({tag, peer, 0});
    const bool fits =
        at != items_.end() && std::get<MessageTag>(at->first) == tag && std::get<int>(at->first) == peer;
    return fits ? at : items_.end();
  }
  At earlier(At one, At other) {
    if (one == items_.end() || other == items_.end()) return one == items_.end() ? other : one;
    return std::get<std::uint64_t>(one->first) < std::get<std::uint64_t>(other->first) ? one : other;
  }
  std::optional<std::pair<int, Item>> take_at(At at) {
    if (at == items_.end()) return std::nullopt;
    std::pair<int, Item> taken(std::get<int>(at->first), std::move(at->second));
    items_.erase(at);
    return taken;
  }

  Items items_;
  std::uint64_t came_ = 0;
};

// The receives and the offers of one member that have not found each other. One thread at a time.
class Matcher {
 public:
  // Takes the receive that gets a message of this peer, which has just arrived. Returns nothing if the
  // message has to wait: add_offer() keeps it.
  std::optional<MessageId> take_receive(int peer, MessageTag tag) {
    auto taken = receives_.take(tag, peer, kAnyPeer);
    if (!taken) return std::nullopt;
    return taken->second;
  }
  void add_offer(int peer, MessageTag tag, Offer offer) {
    payload_bytes_ += offer.payload.size();
    offers_.add(peer, tag, std::move(offer));
  }

  // Takes the peer and the offer of the message that a receive gets, which is just posted. `peer` may be
  // kAnyPeer. Returns nothing if the receive has to wait: add_receive() keeps it.
  std::optional<std::pair<int, Offer>> take_offer(int peer, MessageTag tag) {
    auto taken = peer == kAnyPeer ? offers_.take(tag) : offers_.take(tag, peer, peer);
    if (taken) payload_bytes_ -= taken->second.payload.size();
    return taken;
  }
  void add_receive(int peer, MessageTag tag, MessageId receive) { receives_.add(peer, tag, receive); }

  // Takes all receives that wait for this peer, or with kAnyPeer for no one peer.
  std::vector<MessageId> take_receives(int peer) { return receives_.take_all(peer); }

  // Returns the bytes of the payloads that wait.
  [[nodiscard]] std::size_t payload_bytes() const { return payload_bytes_; }

 private:
  Waiting<MessageId> receives_;
  Waiting<Offer> offers_;
  std::size_t payload_bytes_ = 0;
};

}  // namespace roundelay::collective
