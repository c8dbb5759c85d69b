#include "collective/levels/move_run.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

namespace roundelay::collective::levels {

MoveRun::Layout MoveRun::layout_of(const AllgatherCall& call) {
  Layout layout{call.output.data(), call.region, {}, call.input};
  std::size_t begin = 0;
  for (const std::size_t bytes : call.receive_bytes) {
    layout.given.push_back({static_cast<int>(layout.given.size()), {begin, bytes}});
    begin += bytes;
  }
  return layout;
}

MoveRun::Layout MoveRun::layout_of(const BroadcastCall& call) {
  return {call.buffer.data(), nullptr, {{call.root, {0, call.buffer.size()}}}, nullptr};
}

MoveRun::Layout MoveRun::layout_of(const Call& call) {
  if (const auto* const gather = std::get_if<AllgatherCall>(&call)) return layout_of(*gather);
  return layout_of(std::get<BroadcastCall>(call));
}

MoveRun::MoveRun(const LevelsResources& resources, const Call& call)
    : resources_(resources),
      router_(*resources.router),
      gathers_whole_(std::holds_alternative<AllgatherCall>(call)),
      layout_(layout_of(call)),
      piece_bytes_(resources.plans.front().parts.cut.shard_bytes * (gathers_whole_ ? 2 : 4)),
      hops_(gathers_whole_ ? router_.gather_hops() : router_.broadcast_hops()),
      calls_(resources, call, rounds_of(layout_.given, piece_bytes_), hops_) {
  if (gathers_whole_)
    std::ranges::move(holdings_of_node(router_.node(), layout_.given), std::back_inserter(gathers_));
}

const std::byte* MoveRun::source_of(const ByteRange& bytes) const {
  if (gathers_whole_) {
    const ByteRange& own = layout_.given[static_cast<std::size_t>(resources_.group.index)].bytes;
    if (bytes.offset >= own.offset && bytes.offset - own.offset < own.bytes)
      return layout_.own_part + (bytes.offset - own.offset);
  }
  return layout_.memory + bytes.offset;
}

MoveRun::Round MoveRun::round_of(std::uint64_t number) const {
  Route route(hops_);
  for (const Holding& one : layout_.given) {
    const Holding piece{one.rank, piece_of(one.bytes, number, piece_bytes_)};
    if (piece.bytes.bytes == 0) continue;
    if (gathers_whole_) {
      router_.add_gathered(piece, route);
    } else {
      router_.add_broadcast(piece, route);
    }
  }
  Round round;
  join_neighbours(route.gathers);
  round.gathers = std::move(route.gathers);
  for (const std::vector<RouteMessage>& hop : route.hops) {
    MessageList& list = round.hops.emplace_back();
    list.most_bytes = piece_bytes_;
    for (const RouteMessage& message : hop) {
      if (message.from == resources_.group.index) {
        list.sent.push_back({message.to, {source_of(message.bytes), message.bytes.bytes}});
      } else {
        list.received.push_back({message.from, {layout_.memory + message.bytes.offset, message.bytes.bytes}});
      }
    }
  }
  return round;
}

Result<bool> MoveRun::advance() {
  std::uint64_t before = 0;
  do {
    before = calls_.moves();
    ROUNDELAY_RETURN_IF_ERROR(start_hops());
    ROUNDELAY_RETURN_IF_ERROR(test_hops());
    ROUNDELAY_RETURN_IF_ERROR(advance_gathers());
  } while (calls_.moves() != before);
  if (!calls_.all_hops_ended() || !gathers_.empty()) return false;
  return calls_.node_idle();
}

Status MoveRun::start_hops() {
  while (const auto turn = calls_.next_hop()) {
    if (turn->hop == 0) {
      rounds_.push_back(round_of(turn->round));
    } else if (rounds_[turn->round - first_round_].hops_done < turn->hop) {
      return {};
    }
    ROUNDELAY_RETURN_IF_ERROR(calls_.start_hop(rounds_[turn->round - first_round_].hops[turn->hop]));
  }
  return {};
}

Status MoveRun::test_hops() {
  ROUNDELAY_RETURN_IF_ERROR(
      calls_.test_hops([&](const HopTurn& turn) { ++rounds_[turn.round - first_round_].hops_done; }));
  while (!rounds_.empty() && rounds_.front().hops_done == hops_) {
    std::ranges::move(rounds_.front().gathers, std::back_inserter(gathers_));
    rounds_.pop_front();
    ++first_round_;
  }
  return {};
}

Status MoveRun::advance_gathers() {
  while (!gathers_.empty()) {
    const Result<bool> idle = calls_.node_idle();
    if (!idle.ok()) return idle.status();
    if (!*idle) return {};
    const AllgatherCall gather = gather_of(gathers_.front());
    gathers_.pop_front();
    if (router_.node().size() > 1) {
      ROUNDELAY_RETURN_IF_ERROR(calls_.start_in_node(gather));
    } else if (gather.input != gather.output.data()) {
      std::memcpy(gather.output.data(), gather.input, gather.output.size());
    }
  }
  return {};
}

AllgatherCall MoveRun::gather_of(const Holdings& held) const {
  const std::vector<int>& node = router_.node();
  const ByteRange whole = range_of(held);
  const std::byte* input = nullptr;
  std::vector<std::size_t> sizes(node.size());
  for (const auto& [rank, bytes] : held) {
    sizes[static_cast<std::size_t>(std::ranges::lower_bound(node, rank) - node.begin())] = bytes.bytes;
    if (rank == resources_.group.index) input = source_of(bytes);
  }
  const ByteSpan output(layout_.memory + whole.offset, whole.bytes);
  return {calls_.options(), input, output, std::move(sizes), layout_.region};
}

}  // namespace roundelay::collective::levels
