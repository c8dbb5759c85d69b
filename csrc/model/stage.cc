#include "model/stage.h"

#include <algorithm>

namespace roundelay::model {
namespace {

// Returns the index of the resource that a stage uses: a level's link, and after the levels the memory.
std::size_t resource(const Stage& stage, const Cluster& cluster) {
  return stage.kind == Stage::Kind::kLink ? stage.level : cluster.levels.size();
}

}  // namespace

int ranks_in_part(const Cluster& cluster, std::size_t level) {
  int all = 1;
  for (std::size_t below = 0; below < level; ++below) all *= cluster.levels[below].parts;
  return all;
}

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
  std::vector<double> busy(cluster.levels.size() + 2);
  double all = 0;
  for (const Stage& stage : program.stages) {
    const double time = seconds(stage, cluster, program.chunks);
    all += time;
    busy[resource(stage, cluster)] += time;
  }
  return pipelined(all, *std::max_element(busy.begin(), busy.end()), program.chunks);
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
