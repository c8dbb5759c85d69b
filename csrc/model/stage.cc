#include "model/stage.h"

#include <algorithm>

namespace roundelay::model {
namespace {

// Returns the index of the resource that a stage uses: a level's link, after the levels the memory, and then
// each level's end of the one part that alone sends.
std::size_t resource(const Stage& stage, const Cluster& cluster) {
  const std::size_t levels = cluster.levels.size();
  if (stage.kind != Stage::Kind::kLink) return levels;
  return stage.from_one ? levels + 1 + stage.level : stage.level;
}

}  // namespace

int flows(const Stage& stage, const Cluster& cluster) {
  if (stage.kind != Stage::Kind::kLink) return 1;
  const int sharers = cluster.levels[stage.level].link.sharers;
  return stage.senders > 0 ? std::min(stage.senders, sharers) : sharers;
}

double seconds(const Stage& stage, const Cluster& cluster, int chunks) {
  const double bytes = stage.bytes / chunks;
  if (stage.kind == Stage::Kind::kMemory) return bytes / cluster.memory_bandwidth;
  const Link& link = cluster.levels[stage.level].link;
  return stage.messages * link.latency + bytes * flows(stage, cluster) / link.bandwidth +
         stage.reduced / chunks * link.reduce;
}

double seconds(const Program& program, const Cluster& cluster) {
  std::vector<double> busy(2 * cluster.levels.size() + 1);
  double all = 0;
  for (const Stage& stage : program.stages) {
    const double time = seconds(stage, cluster, program.chunks);
    all += time;
    busy[resource(stage, cluster)] += time;
  }
  return pipelined(all, *std::max_element(busy.begin(), busy.end()), program.chunks);
}

std::vector<double> bytes_sent(const Program& program, const Cluster& cluster) {
  const std::size_t levels = cluster.levels.size();
  std::vector<double> sent(2 * levels + 1);  // by resource
  for (const Stage& stage : program.stages) {
    if (stage.kind == Stage::Kind::kLink)
      sent[resource(stage, cluster)] += stage.bytes * flows(stage, cluster);
  }
  std::vector<double> most(levels);
  for (std::size_t level = 0; level < levels; ++level)
    most[level] = std::max(sent[level], sent[levels + 1 + level]);
  return most;
}

Program with_best_chunks(Program program, const Cluster& cluster, int most) {
  Program best = program;
  best.chunks = 1;
  double least = seconds(best, cluster);
  for (int chunks = 2; chunks <= most; ++chunks) {
    program.chunks = chunks;
    if (const double time = seconds(program, cluster); time < least) {
      least = time;
      best.chunks = chunks;
    }
  }
  return best;
}

}  // namespace roundelay::model
