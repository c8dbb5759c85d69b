// All-gather and alltoall by pairwise exchange. In step s every member sends to the one s places on and
// receives from the one s places back, so that no member is the target of many at once. A few steps are on
// their way at once.
#include <utility>
#include <vector>

#include "collective/algorithms/algorithms.h"

namespace roundelay::collective {
namespace {

constexpr int kStepsInFlight = 8;

// Returns spans that follow each other from `place` on, with `bytes[i]` bytes each.
template <typename Span, typename Pointer>
std::vector<Span> consecutive(Pointer place, const std::vector<std::size_t>& bytes) {
  std::vector<Span> spans;
  for (const std::size_t one : bytes) {
    spans.emplace_back(place, one);
    if (one > 0) place += one;
  }
  return spans;
}

// `given` and `taken` are by member. `sends_empty`: empty messages are sent too. If both sides know which are
// empty, they are not.
Program exchange_all(Exchange& net, std::vector<ConstByteSpan> given, std::vector<ByteSpan> taken,
                     bool sends_empty) {
  const int size = net.size();
  const auto self = static_cast<std::size_t>(net.index());
  std::vector<Transfer> posted_by(static_cast<std::size_t>(size),
                                  0);  // transfers posted up to and with this step's
  for (int step = 1; step < size; ++step) {
    if (step > kStepsInFlight) {
      co_await net.done_before(posted_by[static_cast<std::size_t>(step - kStepsInFlight)]);
    }
    const int source = (net.index() + size - step) % size, target = (net.index() + step) % size;
    const ByteSpan incoming = taken[static_cast<std::size_t>(source)];
    if (sends_empty || !incoming.empty()) net.receive(source, incoming);
    const ConstByteSpan outgoing = given[static_cast<std::size_t>(target)];
    if (sends_empty || !outgoing.empty()) net.send(target, outgoing);
    posted_by[static_cast<std::size_t>(step)] = net.next();
  }
  const ConstByteSpan own = given[self];
  if (!own.empty() && own.data() != taken[self].data()) {
    net.work().copy(taken[self].data(), own.data(), own.size());
  }
  co_await net.all();
}

// All are under way at once: whoever lists messages bounds their number.
Program exchange_messages(Exchange& net, const MessageList& messages) {
  for (const auto& [from, data] : messages.received) net.receive(from, data);
  for (const auto& [to, data] : messages.sent) net.send(to, data);
  co_await net.all();
}

}  // namespace

Program pairwise_all_gather(Exchange& net, const AllgatherCall& call) {
  const std::size_t own = call.receive_bytes[static_cast<std::size_t>(net.index())];
  std::vector<ConstByteSpan> given(static_cast<std::size_t>(net.size()), ConstByteSpan(call.input, own));
  return exchange_all(net, std::move(given), consecutive<ByteSpan>(call.output.data(), call.receive_bytes),
                      false);
}

// In a call with a mark nobody has compared what members send and expect: the marks of messages do.
Program pairwise_alltoall(Exchange& net, const AlltoallCall& call) {
  if (call.messages != nullptr) return exchange_messages(net, *call.messages);
  return exchange_all(net, consecutive<ConstByteSpan>(call.input, call.send_bytes),
                      consecutive<ByteSpan>(call.output.data(), call.receive_bytes),
                      call.mark.set() && call.mark.agrees_by_pair());
}

}  // namespace roundelay::collective
