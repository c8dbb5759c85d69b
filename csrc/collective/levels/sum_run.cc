#include "collective/levels/sum_run.h"

#include <algorithm>
#include <new>
#include <utility>

#include "collective/program/local_work.h"

namespace roundelay::collective::levels {
namespace {

std::vector<Holding> shards_of(const ReducescatterCall& call) {
  std::vector<Holding> shards;
  std::size_t begin = 0;
  for (const std::size_t bytes : call.shard_bytes) {
    shards.push_back({static_cast<int>(shards.size()), {begin, bytes}});
    begin += bytes;
  }
  return shards;
}

// On a broadcast's way back sums of several parts travel. Those of halves might overflow before an average
// divides them.
bool is_rooted(const ReducescatterCall& call) {
  const auto owners = std::ranges::count_if(call.shard_bytes, [](std::size_t bytes) { return bytes > 0; });
  const bool may_overflow = is_floating(call.dtype) && size_of(call.dtype) == 2 && call.scale.divisor > 1;
  return owners == 1 && !may_overflow;
}

bool contains(const ByteRange& range, std::size_t offset) {
  return offset >= range.offset && offset - range.offset < range.bytes;
}

// Returns the memory of a range's sum.
template <typename Partials>
std::byte* sum_of(const Partials& partials, std::size_t offset) {
  const auto found =
      std::ranges::find_if(partials, [&](const auto& one) { return contains(one.range, offset); });
  return found->sum + (offset - found->range.offset);
}

// Places of parts of one block of memory: each begins on a line of its own.
class Places {
 public:
  // Returns the offset of so many bytes more.
  std::size_t add(std::size_t bytes) {
    constexpr std::size_t kLine = 64;
    return std::exchange(end_, end_ + (bytes + kLine - 1) / kLine * kLine);
  }
  [[nodiscard]] std::size_t end() const { return end_; }

 private:
  std::size_t end_ = 0;
};

}  // namespace

SumRun::SumRun(const LevelsResources& resources, const Call& call)
    : resources_(resources),
      router_(*resources.router),
      call_(std::get<ReducescatterCall>(call)),
      shards_(shards_of(call_)),
      rooted_(is_rooted(call_)),
      scales_(split(call_, resources.plans.front().parts.plan)),
      piece_bytes_(resources.plans.front().parts.cut.shard_bytes * (rooted_ ? 4 : 2)),
      round_count_(rounds_of(shards_, piece_bytes_)),
      hops_(rooted_ ? router_.broadcast_hops() : router_.gather_hops()),
      calls_(resources, call, round_count_, hops_) {
  if (rooted_) return;  // the rounds have the root's own sums
  std::ranges::move(holdings_of_node(router_.node(), shards_), std::back_inserter(own_sums_));
}

SumRun::~SumRun() {
  for (Round& round : rounds_) ScratchPool::abandon(std::move(round.memory));
}

Result<bool> SumRun::advance() {
  std::uint64_t before = 0;
  do {
    before = calls_.moves();
    ROUNDELAY_RETURN_IF_ERROR(advance_node_sums());
    ROUNDELAY_RETURN_IF_ERROR(start_hops());
    ROUNDELAY_RETURN_IF_ERROR(test_hops());
  } while (calls_.moves() != before);
  return calls_.all_hops_ended() && rounds_.empty() && summed_ == round_count_;
}

Status SumRun::advance_node_sums() {
  while (true) {
    const Result<bool> idle = calls_.node_idle();
    if (!idle.ok()) return idle.status();
    if (!*idle) return {};
    Result<std::optional<NodeSum>> next = next_node_sum();
    if (!next.ok()) return next.status();
    if (!*next) return {};
    ROUNDELAY_RETURN_IF_ERROR(sum_in_node((*next)->shares, (*next)->to));
  }
}

// The sums of the first rounds come first, so that there is something to send, then those of the node's own
// shards, then those of the further rounds.
Result<std::optional<SumRun::NodeSum>> SumRun::next_node_sum() {
  while (true) {
    if (summed_ == std::min(round_count_, calls_.rounds_ahead() + 1) && !own_sums_.empty()) {
      NodeSum next{std::move(own_sums_.front()), call_.output.data()};
      own_sums_.pop_front();
      return std::optional(std::move(next));
    }
    own_summed_ = own_sums_.empty();
    if (summed_ == first_round_ + rounds_.size()) {
      if (summed_ == round_count_ || rounds_.size() > calls_.rounds_ahead()) return std::optional<NodeSum>();
      ROUNDELAY_RETURN_IF_ERROR(begin_round());
    }
    Round& now = round(summed_);
    if (now.node_sums.empty()) {
      ++summed_;
      continue;
    }
    NodeSum next{std::move(now.node_sums.back()), nullptr};
    now.node_sums.pop_back();
    const auto own = std::ranges::find(next.shares, resources_.group.index, &Holding::rank);
    if (own != next.shares.end()) next.to = sum_of(now.partials, own->bytes.offset);
    return std::optional(std::move(next));
  }
}

// Adds up what the node's ranks have of the range of `shares`.
Status SumRun::sum_in_node(const Holdings& shares, std::byte* to) {
  const std::vector<int>& node = router_.node();
  const ByteRange whole = range_of(shares);
  const Reduction how = reduction(0);
  if (node.size() == 1) {
    const void* const part[] = {call_.input + whole.offset};
    host_work()->reduce_parts(how, to, part, whole.bytes / size_of(how.dtype));
    return {};
  }
  ByteSpan output;
  std::vector<std::size_t> sizes(node.size());
  for (const auto& [rank, bytes] : shares) {
    sizes[static_cast<std::size_t>(std::ranges::lower_bound(node, rank) - node.begin())] = bytes.bytes;
    if (rank == resources_.group.index) output = {to, bytes.bytes};
  }
  return calls_.start_in_node(ReducescatterCall{calls_.options(), how, call_.input + whole.offset, output,
                                                std::move(sizes), nullptr});
}

bool SumRun::ready(const HopTurn& turn) const {
  if (turn.round >= summed_) return false;
  return rounds_[turn.round - first_round_].hops_joined == turn.hop;
}

Status SumRun::start_hops() {
  while (const auto turn = calls_.next_hop()) {
    if (!ready(*turn)) return {};
    ROUNDELAY_RETURN_IF_ERROR(calls_.start_hop(round(turn->round).hops[turn->hop]));
  }
  return {};
}

Status SumRun::test_hops() {
  ROUNDELAY_RETURN_IF_ERROR(calls_.test_hops([&](const HopTurn& turn) { ++round(turn.round).hops_ended; }));
  if (own_summed_) join_ended();
  while (!rounds_.empty() && rounds_.front().hops_joined == hops_) {
    resources_.scratch.release(std::move(rounds_.front().memory));
    rounds_.pop_front();
    ++first_round_;
  }
  return {};
}

// Joins what has come. The node's own sums are there.
void SumRun::join_ended() {
  for (Round& one : rounds_) {
    for (; one.hops_joined < one.hops_ended; ++one.hops_joined) join(one, one.hops_joined);
  }
}

// Adds up the sums of all parts, in the parts' order.
void SumRun::join(Round& round, std::size_t hop) {
  for (const auto& [fork, incoming] : round.joins[hop]) {
    std::byte* const own = sum_of(round.partials, fork.bytes.offset);
    std::vector<const void*> parts;
    const std::byte* next = incoming;
    for (std::size_t part = 0; part < fork.parts; ++part) {
      parts.push_back(part == fork.part ? own : std::exchange(next, next + fork.bytes.bytes));
    }
    Reduction how = reduction(fork.level);
    if (!fork.last) how.scale = {};
    host_work()->reduce_parts(how, own, parts, fork.bytes.bytes / size_of(how.dtype));
  }
}

// The arithmetic of a level. One that joins nothing has no stage, and does not scale.
Reduction SumRun::reduction(std::size_t level) const {
  const std::vector<MemberStage>& stages = resources_.plans.front().parts.plan.stages;
  const auto stage = std::ranges::find(stages, level, &MemberStage::level);
  const auto index = static_cast<std::size_t>(stage - stages.begin());
  return {.dtype = call_.dtype,
          .reduce_op = call_.reduce_op,
          .prescale = level == 0 ? call_.prescale : Scale{},
          .scale = stage == stages.end() ? Scale{} : scales_[index]};
}

Status SumRun::begin_round() {
  const std::uint64_t number = first_round_ + rounds_.size();
  const Route route = route_of(number);
  Round& made = rounds_.emplace_back();
  try {
    place(made, route, number);
  } catch (const std::bad_alloc&) {
    return Status::aborted("a reducescatter over levels ran out of memory");
  }
  list_messages(made, route);
  made.node_sums.assign(route.gathers.rbegin(), route.gathers.rend());
  return {};
}

Route SumRun::route_of(std::uint64_t number) const {
  Route route(hops_);
  for (const Holding& one : shards_) {
    const Holding piece{one.rank, piece_of(one.bytes, number, piece_bytes_)};
    if (piece.bytes.bytes == 0) continue;
    if (rooted_) {
      router_.add_broadcast(piece, route);
    } else {
      router_.add_gathered(piece, route);
    }
  }
  join_neighbours(route.gathers);
  return route;
}

// Finds room for what this member gets from its node and from other parts. The sum of its own piece is made
// where the result belongs.
void SumRun::place(Round& round, const Route& route, std::uint64_t number) const {
  Places places;
  const ByteRange piece = own_piece(number);
  std::vector<std::pair<ByteRange, std::size_t>> shares;  // ranges and their offsets in memory
  for (const Holdings& held : route.gathers) {
    const auto own = std::ranges::find(held, resources_.group.index, &Holding::rank);
    if (own != held.end() && !contains(piece, own->bytes.offset))
      shares.emplace_back(own->bytes, places.add(own->bytes.bytes));
  }
  const std::size_t hops = route.forks.size();
  std::vector<std::size_t> incoming;
  for (std::size_t hop = hops; hop-- > 0;) {
    for (const RouteFork& fork : route.forks[hop])
      incoming.push_back(places.add((fork.parts - 1) * fork.bytes.bytes));
  }
  round.memory = resources_.scratch.acquire(places.end());
  std::byte* const memory = round.memory.memory.get();
  for (const auto& [range, offset] : shares) round.partials.push_back({range, memory + offset});
  if (piece.bytes > 0) {
    const std::size_t first = shards_[static_cast<std::size_t>(resources_.group.index)].bytes.offset;
    round.partials.push_back({piece, call_.output.data() + (piece.offset - first)});
  }
  auto next = incoming.begin();
  for (std::size_t hop = hops; hop-- > 0;) {
    std::vector<Join>& joins = round.joins.emplace_back();
    for (const RouteFork& fork : route.forks[hop]) joins.push_back({fork, memory + *next++});
  }
}

// On the way back messages go from receivers to senders, and the last hop comes first.
void SumRun::list_messages(Round& round, const Route& route) const {
  const std::size_t hops = route.hops.size();
  for (std::size_t back = 0; back < hops; ++back) {
    MessageList& list = round.hops.emplace_back();
    list.most_bytes = piece_bytes_;
    for (const RouteMessage& message : route.hops[hops - 1 - back]) {
      const ByteRange& bytes = message.bytes;
      if (message.to == resources_.group.index) {
        list.sent.push_back({message.from, {sum_of(round.partials, bytes.offset), bytes.bytes}});
        continue;
      }
      const auto join = std::ranges::find_if(
          round.joins[back], [&](const Join& one) { return contains(one.fork.bytes, bytes.offset); });
      const std::size_t place = message.part - (message.part > join->fork.part ? 1 : 0);
      std::byte* const data =
          join->incoming + place * join->fork.bytes.bytes + (bytes.offset - join->fork.bytes.offset);
      list.received.push_back({message.to, {data, bytes.bytes}});
    }
  }
}

}  // namespace roundelay::collective::levels
