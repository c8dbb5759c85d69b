#include "collective/levels/route_calls.h"

#include <algorithm>
#include <utility>

namespace roundelay::collective::levels {
namespace {

// Over many nodes a hop has many messages itself.
std::uint64_t most_hops(const LevelsResources& resources) {
  const std::uint64_t across = resources.plans.front().parts.cut.most_across;
  return std::max<std::uint64_t>(2, 2 * across / resources.router->nodes());
}

}  // namespace

RouteCalls::RouteCalls(const LevelsResources& resources, const Call& call, std::uint64_t rounds,
                       std::size_t hops)
    : resources_(resources),
      given_(options_of(call)),
      most_hops_(levels::most_hops(resources)),
      order_(rounds, hops, most_hops_),
      spans_(given_.observer, resources.plans.front().stages) {}

std::optional<HopTurn> RouteCalls::next_hop() const {
  if (order_.over() || hops_.size() == most_hops_) return std::nullopt;
  return order_.next();
}

Status RouteCalls::start_hop(const MessageList& messages) {
  auto started = resources_.flat.start(AlltoallCall{options(), nullptr, {}, {}, {}, &messages});
  if (!started.ok()) return started.status();
  hops_.push_back({order_.next(), std::move(started).value()});
  order_.advance();
  spans_.note(false, true);
  return {};
}

Status RouteCalls::start_in_node(const Call& call) {
  auto started = resources_.node().start(call);
  if (!started.ok()) return started.status();
  in_node_ = std::move(started).value();
  spans_.note(true, true);
  return {};
}

Result<bool> RouteCalls::node_idle() {
  if (in_node_ == nullptr) return true;
  Result<bool> done = in_node_->test();
  if (!done.ok() || !*done) return done;
  in_node_.reset();
  ++moves_;
  spans_.note(true, false);
  return true;
}

CallOptions RouteCalls::options() const {
  return {.absent = {},
          .stream = given_.stream,
          .deadline = given_.deadline,
          .abort = given_.abort,
          .algorithm = given_.algorithm,
          .mark = given_.mark};
}

int RouteCalls::waiting_for() const {
  for (const Hop& hop : hops_) {
    if (const int member = hop.pending->waiting_for(); member >= 0) return member;
  }
  const int member = in_node_ == nullptr ? -1 : in_node_->waiting_for();
  return member < 0 ? -1 : resources_.router->node()[static_cast<std::size_t>(member)];
}

bool RouteCalls::crowded() const {
  return (in_node_ != nullptr && in_node_->crowded()) || (!hops_.empty() && hops_.front().pending->crowded());
}

// A peer on this node ends a sleep in a call there. Peers of other nodes cannot end one.
Nap RouteCalls::idle(Backoff& backoff) {
  if (std::exchange(moves_at_idle_, moves_) != moves_) backoff.reset();
  if (hops_.empty()) return in_node_ == nullptr ? Nap{} : in_node_->idle(backoff);
  return hops_.front().pending->idle(backoff).at_most(Backoff::kLongest);
}

std::vector<Holdings> holdings_of_node(const std::vector<int>& node, const std::vector<Holding>& all) {
  std::vector<Holdings> lists;
  int last = -1;
  for (const int rank : node) {
    const Holding& one = all[static_cast<std::size_t>(rank)];
    if (last < 0 || rank != last + 1) lists.emplace_back();
    if (one.bytes.bytes > 0) lists.back().push_back(one);
    last = rank;
  }
  std::erase_if(lists, [](const Holdings& one) { return one.empty(); });
  return lists;
}

ByteRange piece_of(const ByteRange& whole, std::uint64_t round, std::size_t bytes) {
  const std::size_t begin = std::min(whole.bytes, static_cast<std::size_t>(round) * bytes);
  return {whole.offset + begin, std::min(bytes, whole.bytes - begin)};
}

std::uint64_t rounds_of(const std::vector<Holding>& all, std::size_t piece_bytes) {
  std::size_t most = 1;
  for (const Holding& one : all) most = std::max(most, one.bytes.bytes);
  return (most + piece_bytes - 1) / piece_bytes;
}

}  // namespace roundelay::collective::levels
