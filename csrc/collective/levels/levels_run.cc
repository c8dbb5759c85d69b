#include "collective/levels/levels_run.h"

#include <algorithm>
#include <utility>

namespace roundelay::collective::levels {
namespace {

// A stage inside the node has one step at a time: shared memory carries calls out one after the other.
std::uint64_t most_steps(const StageFabrics& stage, const LevelsCut& cut) {
  return stage.in_node ? 1 : cut.most_across;
}

// A stage is ahead of the next one by as many chunks as that one can have in progress, so that each finds
// work.
std::vector<StageRun> stage_runs(const LevelsPlan& parts, std::uint64_t chunks) {
  const std::vector<StageFabrics>& stages = parts.stages;
  std::vector<StageRun> runs;
  std::uint64_t lookahead = chunks;  // of the last stage, which gathers nothing by itself
  for (std::size_t i = stages.size(); i-- > 0;) {
    const bool last = i + 1 == stages.size();
    runs.emplace_back(StepOrder(chunks, lookahead), most_steps(stages[i], parts.cut), last);
    lookahead = (last ? 0 : lookahead) + most_steps(stages[i], parts.cut);
  }
  std::ranges::reverse(runs);
  return runs;
}

Chunks chunks_of(const LevelsPlan& parts, const AllreduceCall& call) {
  const std::size_t bytes = call.buffer.bytes;
  const std::size_t shard =
      shard_bytes_of(parts.plan, bytes, parts.cut.shard_bytes, parts.cut.most_shard_bytes);
  return {bytes, size_of(call.dtype), chunk_bytes_of(parts.plan, shard), parts.plan.units};
}

}  // namespace

const NamedLevelsPlan& LevelsResources::plan_for(const Call& call) const {
  const auto asked = options_of(call).factors;
  const auto found = std::ranges::find_if(plans, [&](const NamedLevelsPlan& named) {
    return std::ranges::equal(named.parts.plan.stages, asked, {}, [](const MemberStage& stage) {
      return static_cast<std::uint32_t>(stage.members);
    });
  });
  return found == plans.end() ? plans.front() : *found;
}

LevelsRun::LevelsRun(const LevelsResources& resources, const Call& call)
    : resources_(resources),
      call_(std::get<AllreduceCall>(call)),
      named_(resources.plan_for(call)),
      parts_(named_.parts),
      chunks_(chunks_of(parts_, call_)),
      scales_(split(call_, parts_.plan)),
      stages_(stage_runs(parts_, chunks_.count())),
      spans_(call_.observer, named_.stages) {}

Result<bool> LevelsRun::advance() {
  std::uint64_t before = 0;
  do {
    before = moves_;
    for (std::size_t stage = 0; stage < stages_.size(); ++stage) ROUNDELAY_RETURN_IF_ERROR(advance(stage));
  } while (moves_ != before);
  return stages_.front().gathered() == chunks_.count();
}

Status LevelsRun::advance(std::size_t stage) {
  StageRun& run = stages_[stage];
  while (true) {
    while (may_start(stage)) ROUNDELAY_RETURN_IF_ERROR(start(stage, run.next()));
    const Result<std::uint64_t> ended = run.test();
    if (!ended.ok()) return ended.status();
    if (*ended == 0) return {};
    moves_ += *ended;
    observe();
  }
}

bool LevelsRun::may_start(std::size_t stage) const {
  if (!stages_[stage].has_next()) return false;
  const StageStep step = stages_[stage].next();
  if (step.gathers) return step.chunk < stages_[stage + 1].gathered();
  return stage == 0 || step.chunk < stages_[stage - 1].scattered();
}

Status LevelsRun::start(std::size_t stage, const StageStep& step) {
  const StageFabrics& fabrics = parts_.stages[stage];
  StageRun::StepCalls calls;
  for (const Share& share : parts_.plan.stages[stage].shares) {
    const std::optional<Call> call = call_of(stage, share, step);
    if (!call) continue;
    Fabric& fabric = *fabrics.of_groups[share.group];
    auto started = fabric.start(*call);
    if (!started.ok()) return started.status();
    calls.push_back({std::move(started).value(), &fabric.group()});
  }
  stages_[stage].begin(std::move(calls));
  spans_.note(fabrics.in_node, true);
  return {};
}

std::optional<Call> LevelsRun::call_of(std::size_t stage, const Share& share, const StageStep& step) const {
  const ByteRange whole = chunks_.bytes_of(step.chunk, share.range);
  if (whole.bytes == 0) return std::nullopt;
  std::byte* const data = call_.buffer.data();
  const ByteSpan range(data + whole.offset, whole.bytes);
  if (stage + 1 == stages_.size()) {
    return AllreduceCall{options(),
                         reduction(stage),
                         {call_.buffer.base, call_.buffer.offset + whole.offset, whole.bytes, nullptr}};
  }
  std::vector<std::size_t> shard_bytes;
  for (const ElementRange& shard : share.shards) {
    shard_bytes.push_back(chunks_.bytes_of(step.chunk, shard).bytes);
  }
  const int index = parts_.plan.stages[stage].groups[share.group].index;
  const ByteRange mine = chunks_.bytes_of(step.chunk, share.shards[static_cast<std::size_t>(index)]);
  const ByteSpan own(data + mine.offset, mine.bytes);
  if (step.gathers) {
    return AllgatherCall{options(), own.data(), range, std::move(shard_bytes), call_.buffer.region};
  }
  return ReducescatterCall{options(), reduction(stage),       range.data(),
                           own,       std::move(shard_bytes), call_.buffer.region};
}

CallOptions LevelsRun::options() const {
  return {.absent = {},
          .stream = call_.stream,
          .deadline = call_.deadline,
          .abort = call_.abort,
          .algorithm = call_.algorithm,
          .mark = call_.mark};
}

Reduction LevelsRun::reduction(std::size_t stage) const {
  return {.dtype = call_.dtype,
          .reduce_op = call_.reduce_op,
          .prescale = stage == 0 ? call_.prescale : Scale{},
          .scale = scales_[stage]};
}

bool LevelsRun::busy(bool in_node) const {
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    if (parts_.stages[stage].in_node == in_node && !stages_[stage].idle()) return true;
  }
  return false;
}

void LevelsRun::observe() {
  for (const bool in_node : {false, true}) spans_.note(in_node, busy(in_node));
}

int LevelsRun::waiting_for() const {
  for (const StageRun& stage : stages_) {
    const int rank = stage.waiting_for();
    if (rank < 0) continue;
    const std::vector<int>& ranks = resources_.group.ranks;
    return static_cast<int>(std::ranges::lower_bound(ranks, rank) - ranks.begin());
  }
  return -1;
}

bool LevelsRun::crowded() const {
  return std::ranges::any_of(stages_, [](const StageRun& stage) {
    const PendingCall* const first = stage.first();
    return first != nullptr && first->crowded();
  });
}

// A peer on this node ends a sleep in the call of a stage inside it. Peers of other stages cannot, so that
// the sleep is short while these have steps in progress, too.
Nap LevelsRun::idle(Backoff& backoff) {
  if (std::exchange(moves_at_idle_, moves_) != moves_) backoff.reset();
  const auto at_work = std::ranges::count_if(stages_, [](const StageRun& stage) { return !stage.idle(); });
  for (const StageRun& stage : stages_) {
    PendingCall* const first = stage.first();
    if (first == nullptr) continue;
    const Nap nap = first->idle(backoff);
    return at_work == 1 ? nap : nap.at_most(Backoff::kLongest);
  }
  return {};
}

}  // namespace roundelay::collective::levels
