#include "tests/cpp/contract/message_contract.h"

#include <chrono>
#include <deque>
#include <thread>
#include <utility>

namespace roundelay::contract {
namespace {

using collective::kMostPayload;
using collective::PeerLink;

constexpr MessageTag kLargestTag = UINT32_MAX;

// One message, with the memory that it has to keep.
struct Posted {
  Result<MessageId> id;
  std::unique_ptr<Bytes> memory;
  int peer;
  Bytes want{};  // of a receive
};

// The messages of one member's test. The first error ends it.
class Script {
 public:
  explicit Script(Member& member) : member_(member), self_(member.index) {}

  void send(int to, MessageTag tag, std::size_t bytes, unsigned number = 0) {
    auto memory = std::make_unique<Bytes>(stamped(bytes, self_, to, tag, number));
    const auto id = member_.messages.send(to, *memory, tag);
    posted_.push_back({id, std::move(memory), to});
  }
  void receive(int from, MessageTag tag, std::size_t bytes, unsigned number = 0) {
    auto memory = std::make_unique<Bytes>(bytes);
    const auto id = member_.messages.receive(from, *memory, tag);
    posted_.push_back({id, std::move(memory), from, stamped(bytes, from, self_, tag, number)});
  }
  // Waits for all messages, and compares what came.
  std::string finish() {
    for (std::size_t i = 0; i < posted_.size(); ++i) {
      const Posted& one = posted_[i];
      const std::string where = "message " + std::to_string(i) + ": ";
      if (!one.id.ok()) return where + one.id.status().message();
      const Result<int> peer = wait_for(member_.messages, *one.id);
      if (!peer.ok()) return where + peer.status().message();
      if (*peer != one.peer) return where + "it names member " + std::to_string(*peer);
      if (!one.want.empty() && *one.memory != one.want) return where + "other bytes came";
    }
    posted_.clear();
    return {};
  }

 private:
  Member& member_;
  const int self_;
  std::deque<Posted> posted_;
};

template <typename Do>
void for_peers(const Member& member, const Do& with) {
  for (int peer = 0; peer < member.size; ++peer) {
    if (peer != member.index) with(peer);
  }
}

std::string all_sizes(Member& member) {
  Script script(member);
  const std::size_t most = kMostPayload;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{7}, most - 1, most, most + 1,
                                  std::size_t{4097}, PeerLink::kMostPayloads - 1, PeerLink::kMostPayloads + 1,
                                  (std::size_t{256} << 10U) - 16, (std::size_t{256} << 10U) + 1}) {
    for_peers(member, [&](int peer) { script.send(peer, 3, bytes); });
    for_peers(member, [&](int peer) { script.receive(peer, 3, bytes); });
    if (std::string error = script.finish(); !error.empty())
      return std::to_string(bytes) + " bytes, " + error;
  }
  return {};
}

std::string crossing(Member& member) {
  constexpr std::size_t kLarge = (std::size_t{1} << 20U) + 5;
  for (const bool sends_first : {true, false}) {
    Script script(member);
    for (unsigned number = 0; number < 3; ++number) {
      for_peers(member, [&](int peer) {
        if (sends_first == (number != 1)) script.send(peer, 1, kLarge, number);
        script.receive(peer, 1, kLarge, number);
        if (sends_first != (number != 1)) script.send(peer, 1, kLarge, number);
      });
    }
    if (std::string error = script.finish(); !error.empty()) return error;
  }
  return {};
}

// Small and large messages take different ways. They match all the same in the order of posting.
std::string order_of_posting(Member& member) {
  Script script(member);
  const auto size_of = [](unsigned number) { return number % 3 == 1 ? std::size_t{5000} : std::size_t{20}; };
  for (unsigned number = 0; number < 60; ++number)
    for_peers(member, [&](int peer) { script.send(peer, 9, size_of(number), number); });
  for (unsigned number = 0; number < 60; ++number)
    for_peers(member, [&](int peer) { script.receive(peer, 9, size_of(number), number); });
  return script.finish();
}

std::string tags_out_of_order(Member& member) {
  Script script(member);
  const std::vector<MessageTag> tags = {0, 1, 77, 1U << 15U, 1U << 31U, kLargestTag};
  for (unsigned number = 0; number < 10; ++number)
    for (const MessageTag tag : tags)
      for_peers(member, [&](int peer) { script.send(peer, tag, 50 + 900 * (number % 2), number); });
  for (auto tag = tags.rbegin(); tag != tags.rend(); ++tag)
    for (unsigned number = 0; number < 10; ++number)
      for_peers(member, [&](int peer) { script.receive(peer, *tag, 50 + 900 * (number % 2), number); });
  return script.finish();
}

// Every member gets all messages of all others by receives from any. Those of one peer come in its order.
std::string from_any(Member& member) {
  constexpr unsigned kEach = 20;
  for (const std::size_t bytes : {40, 600}) {
    const auto tag = static_cast<MessageTag>(bytes);  // some members are earlier in the second round
    Script sends(member);
    for (unsigned number = 0; number < kEach; ++number)
      for_peers(member, [&](int peer) { sends.send(peer, tag, bytes, number); });
    std::vector<unsigned> next(static_cast<std::size_t>(member.size));
    for (unsigned i = 0; i < kEach * static_cast<unsigned>(member.size - 1); ++i) {
      Bytes memory(bytes);
      const Result<MessageId> id = member.messages.receive_any(memory, tag);
      if (!id.ok()) return id.status().message();
      const Result<int> from = wait_for(member.messages, *id);
      if (!from.ok()) return from.status().message();
      const unsigned number = next[static_cast<std::size_t>(*from)]++;
      if (memory != stamped(bytes, *from, member.index, tag, number))
        return "message " + std::to_string(number) + " of member " + std::to_string(*from) +
               " has other bytes";
    }
    if (std::string error = sends.finish(); !error.empty()) return error;
  }
  return {};
}

std::string mismatch_text(int from, int to, std::size_t sent, std::size_t wanted) {
  return "rank " + std::to_string(10 + from) + " sends " + std::to_string(sent) +
         " bytes with tag 6 to rank " + std::to_string(10 + to) + ", which receives " +
         std::to_string(wanted) + " bytes with that tag";
}

std::string expect_mismatch(PointToPoint& messages, const Result<MessageId>& id, const std::string& text) {
  if (!id.ok()) return id.status().message();
  const Status error = wait_for(messages, *id).status();
  const bool right = error.code() == StatusCode::kMismatch && error.message() == text;
  return right ? std::string() : "not \"" + text + "\" but \"" + error.message() + '"';
}

// Members 0 and 1 disagree on sizes, before and after the message has come. Both hear it, and go on.
std::string sizes_differ(Member& member) {
  if (member.index > 1) return {};
  const int peer = 1 - member.index;
  const std::pair<std::size_t, std::size_t> pairs[] = {
      {1, 0},     {0, 1},         {100, 99},      {100, 101},  {10, 5000},
      {5000, 10}, {70000, 70001}, {70001, 70000}, {300000, 0}, {kMostPayload, kMostPayload + 1}};
  for (const auto& [sent, wanted] : pairs) {
    Bytes out(sent, std::byte{1}), in(wanted, std::byte{2});
    const bool sends = member.index == 0;
    const auto id = sends ? member.messages.send(peer, out, 6) : member.messages.receive(peer, in, 6);
    std::string error = expect_mismatch(member.messages, id, mismatch_text(0, 1, sent, wanted));
    if (!error.empty()) return error;
    if (in != Bytes(wanted, std::byte{2})) return "the memory of a receive with an error was written";
    Script script(member);
    script.send(peer, 6, 100 + sent);
    script.receive(peer, 6, 100 + sent);
    error = script.finish();
    if (!error.empty()) return "after a mismatch: " + error;
  }
  return {};
}

// Member 0 has sent everything before member 1 posts a receive. The second time shows that the first has left
// nothing behind.
std::string many_before_the_first_receive(Member& member) {
  if (member.index > 1) return {};
  constexpr std::size_t kBytes = 480;
  constexpr unsigned kMany = 2 * PeerLink::kMostPayloads / kBytes;  // half of them find no room
  for (int time = 0; time < 2; ++time) {
    Script script(member);
    if (member.index == 0) {
      for (unsigned number = 0; number < kMany; ++number) script.send(1, 2, kBytes, number);
      script.send(1, 4, 1);
    } else {
      script.receive(0, 4, 1);  // offers come in order, so all are here when this message is
      if (std::string error = script.finish(); !error.empty()) return error;
      const std::size_t waiting = member.messages.payload_bytes();
      if (waiting > PeerLink::kMostPayloads || waiting + kBytes < PeerLink::kMostPayloads)
        return std::to_string(waiting) + " bytes wait";
      for (unsigned number = 0; number < kMany; ++number) script.receive(0, 2, kBytes, number);
    }
    if (std::string error = script.finish(); !error.empty()) return error;
  }
  // Not before: after the first time, bytes of the second one may have come.
  return member.messages.payload_bytes() == 0 ? std::string() : "bytes are left";
}

std::string invalid_arguments(Member& member) {
  Bytes memory(8);
  const auto refused = [](const Result<MessageId>& id) {
    return !id.ok() && id.status().code() == StatusCode::kInvalidArgument;
  };
  PointToPoint& messages = member.messages;
  for (const int peer : {member.index, -1, member.size}) {
    if (!refused(messages.send(peer, memory, 0)) || !refused(messages.receive(peer, memory, 0)))
      return "member " + std::to_string(peer) + " was accepted";
  }
  return {};
}

// Member 0 leaves. The others go on without it, and hear that it has left.
std::string one_leaves(Member& member) {
  if (member.size < 3) return {};
  if (member.index == 0) return {};  // run_member() leaves
  Bytes memory(8);
  const Result<MessageId> id = member.messages.receive(0, memory, 1);
  const Status error = id.ok() ? wait_for(member.messages, *id).status() : id.status();
  if (error.message() != "rank 10 has left") return "it says \"" + error.message() + '"';
  if (member.messages.send(0, memory, 1).status() != error) return "a send to it is accepted";
  Script script(member);
  for (const std::size_t bytes : {std::size_t{10}, std::size_t{10'000}}) {
    for (int peer = 1; peer < member.size; ++peer) {
      if (peer == member.index) continue;
      script.send(peer, 1, bytes);
      script.receive(peer, 1, bytes);
    }
  }
  return script.finish();
}

// Returns "" when step() has said true. Throws away the time that nothing moves.
template <typename Step, typename Idle>
Status repeat(const Step& step, const Idle& idle) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  Backoff backoff(true);
  while (true) {
    const Result<bool> done = step();
    if (!done.ok()) return done.status();
    if (*done) return {};
    if (deadline.passed()) return Status::aborted("it hangs");
    idle(backoff).wait();
  }
}

}  // namespace

const std::vector<MessageTest>& message_contract() {
  static const std::vector<MessageTest> kTests = {
      {"messages of all sizes", all_sizes},
      {"large messages cross", crossing},
      {"messages match in the order of posting", order_of_posting},
      {"tags are received in another order", tags_out_of_order},
      {"receives from any", from_any},
      {"sizes that differ", sizes_differ},
      {"many messages before the first receive", many_before_the_first_receive},
      {"invalid arguments", invalid_arguments},
      {"one member leaves", one_leaves},
  };
  return kTests;
}

Group message_group(int size, int index) {
  Group group;
  for (int rank = 0; rank < size; ++rank) group.ranks.push_back(10 + rank);
  group.index = index;
  return group;
}

Bytes stamped(std::size_t bytes, int from, int to, MessageTag tag, unsigned number) {
  Bytes memory(bytes);
  std::uint32_t state = (static_cast<std::uint32_t>(from) * 31 + static_cast<std::uint32_t>(to)) * 1009 +
                        tag * 7919 + number * 104'729 + 1;
  for (std::byte& byte : memory) {
    state = state * 1'664'525 + 1'013'904'223;
    byte = static_cast<std::byte>(state >> 24U);
  }
  return memory;
}

Result<int> wait_for(PointToPoint& messages, MessageId id) {
  int peer = 0;
  const auto step = [&]() -> Result<bool> {
    const Result<std::optional<int>> over = messages.test(id);
    if (!over.ok()) return over.status();
    peer = over->value_or(0);
    return over->has_value();
  };
  ROUNDELAY_RETURN_IF_ERROR(repeat(step, [&](Backoff& backoff) { return messages.idle(backoff); }));
  return peer;
}

Status wait_for(Transport& transport, collective::TransferId id) {
  return repeat([&] { return transport.test(id); }, [&](Backoff& backoff) { return transport.nap(backoff); });
}

std::string run_member(std::unique_ptr<Transport> transport, const Group& group, const MemberPart& part) {
  PointToPoint messages(std::move(transport), group);
  Member member{messages, group.index, group.size()};
  std::string error = part(member);
  if (!error.empty()) return error;
  return repeat([&] { return messages.leave(); }, [&](Backoff& backoff) { return messages.idle(backoff); })
      .message();
}

std::string run_members_on_threads(std::vector<std::unique_ptr<Transport>> transports,
                                   const MemberPart& part) {
  std::vector<std::string> errors(transports.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < transports.size(); ++i) {
    threads.emplace_back([&, i] {
      const Group group = message_group(static_cast<int>(transports.size()), static_cast<int>(i));
      errors[i] = run_member(std::move(transports[i]), group, part);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < errors.size(); ++i) {
    if (!errors[i].empty()) return "member " + std::to_string(i) + ": " + errors[i];
  }
  return {};
}

}  // namespace roundelay::contract
