#include "lock/relay.h"

#include <algorithm>
#include <string>
#include <utility>

namespace roundelay::lock {

Relay::Relay(NodeBoard& board, NodeTree tree, int member)
    : board_(board), tree_(std::move(tree)), member_(member), collected_(tree_.own().size()) {
  for (const NodeEdge& to : tree_.edges()) edges_.push_back({.to = to});
}

void Relay::connect(Send send) {
  MutexLock lock(mutex_);
  send_ = std::move(send);
  if (leads()) carry();
}

void Relay::node_announced() {
  MutexLock lock(mutex_);
  if (leads()) {
    carry();
  } else if (send_) {
    send_(tree_.leader(), {});
  }
}

void Relay::look() {
  MutexLock lock(mutex_);
  if (leads()) carry();
}

void Relay::wake() {
  MutexLock lock(mutex_);
  if (send_) send_(member_, {});
}

Status Relay::take(int from, const wire::Announced& message) {
  MutexLock lock(mutex_);
  if (leads() && std::ranges::binary_search(tree_.own(), from)) {
    carry();
    return {};
  }
  const auto edge = std::ranges::find(edges_, from, [](const Edge& one) { return one.to.leader; });
  if (!leads() || edge == edges_.end())
    return Status::internal("it announces to a rank that is no neighbour");
  return take_from_edge(*edge, message);
}

Status Relay::take_from_edge(Edge& edge, const wire::Announced& message) {
  for (const wire::ShownCell& cell : message.cells) {
    const auto member = static_cast<std::size_t>(cell.member);
    if (cell.member < 0 || member >= edge.to.beyond.size() || !edge.to.beyond[member] ||
        cell.number >= kCells)
      return Status::internal("it announces for a member that is elsewhere");
    board_.put(cell.member, cell.number, {cell.submission, cell.words});
    for (Edge& other : edges_) {
      if (&other != &edge) other.unsent.push_back(cell);
    }
  }
  if (message.word < edge.received) return Status::internal("its announcements go back");
  edge.received = message.word;
  const auto least = std::ranges::min_element(edges_, {}, &Edge::received);
  board_.raise_others(least->received);
  carry();
  return {};
}

void Relay::carry() {
  if (!send_) return;
  const std::uint64_t own = board_.least_word();
  collect_own_cells();
  for (Edge& edge : edges_) {
    std::uint64_t word = own;
    for (const Edge& other : edges_) {
      if (&other != &edge) word = std::min(word, other.received);
    }
    if (word <= edge.sent) continue;
    edge.sent = word;
    send_(edge.to.leader, {{}, word, std::exchange(edge.unsent, {})});
  }
}

// Agreements of a period are numbered from 0, and each uses two cells. A member shows one of a later
// agreement first only before it has announced the earlier one.
void Relay::collect_own_cells() {
  for (std::size_t place = 0; place < tree_.own().size(); ++place) {
    const int member = tree_.own()[place];
    std::vector<std::uint64_t>& collected = collected_[place];
    for (std::size_t number = 0; number < kCells; ++number) {
      const Cell cell = board_.shown(member, number);
      if (collected.size() <= number) collected.push_back(0);
      if (cell.submission > collected[number]) {
        collected[number] = cell.submission;
        for (Edge& edge : edges_)
          edge.unsent.push_back({member, static_cast<std::uint32_t>(number), cell.submission, cell.words});
      }
      const bool second = number % 2 == 1;
      if (second && collected[number] == 0 && collected[number - 1] == 0) break;
    }
  }
}

}  // namespace roundelay::lock
