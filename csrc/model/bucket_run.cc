#include "model/bucket_run.h"

#include <algorithm>

namespace roundelay::model {

BucketRun::BucketRun(const Program& program, const Groups& groups, int gates)
    : program_(program),
      gates_(static_cast<std::size_t>(groups.ranks()), gates),
      left_(static_cast<std::size_t>(groups.ranks()), program.chunks),
      ranks_left_(groups.ranks()) {
  for (const Stage& stage : program.stages) first_.push_back(first_.back() + groups.count(stage));
  const auto tasks = static_cast<std::size_t>(first_.back()) * static_cast<std::size_t>(program.chunks);
  transfers_.assign(tasks, 0);
  needs_.reserve(tasks);
  for (int chunk = 0; chunk < program.chunks; ++chunk) {
    for (std::size_t stage = 0; stage < program.stages.size(); ++stage) {
      const int count = groups.count(program.stages[stage]);
      for (int group = 0; group < count; ++group) {
        // A chunk's first stage follows the one before it on the same ranks, which have all arrived.
        const int before = chunk > 0 ? 1 : 0;
        const bool waits_for_members = stage > 0 || chunk == 0;
        const auto members = waits_for_members ? groups.members(program.stages[stage], group).size() : 0;
        needs_.push_back(static_cast<int>(members) + before);
      }
    }
  }
}

std::int64_t BucketRun::number(const Task& task) const {
  return std::int64_t{task.chunk} * first_.back() + first_[static_cast<std::size_t>(task.stage)] + task.group;
}

BucketRun::Task BucketRun::task(std::int64_t number) const {
  const int within = static_cast<int>(number % first_.back());
  const auto after = std::upper_bound(first_.begin(), first_.end(), within);
  const int stage = static_cast<int>(after - first_.begin()) - 1;
  return {static_cast<int>(number / first_.back()), stage, within - first_[static_cast<std::size_t>(stage)]};
}

}  // namespace roundelay::model
