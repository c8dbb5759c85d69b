// Counts what a bucket's tasks still wait for in the simulation. A task is one stage of one chunk, carried
// out by one group of ranks. It may begin when all ranks of the group have ended their stage before, and when
// the group has ended this stage of the chunk before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/groups.h"
#include "model/stage.h"

namespace roundelay::model {

class BucketRun {
 public:
  struct Task {
    int chunk = 0, stage = 0, group = 0;
  };

  // `program` and `groups` outlive it. `gates`: the number of events that each rank awaits before its first
  // task, such as the bucket's last gradient, and the end of an earlier bucket.
  BucketRun(const Program& program, const Groups& groups, int gates);

  [[nodiscard]] const Program& program() const { return program_; }
  [[nodiscard]] const Stage& stage(const Task& task) const {
    return program_.stages[static_cast<std::size_t>(task.stage)];
  }
  [[nodiscard]] int stages() const { return static_cast<int>(program_.stages.size()); }
  // Events carry a task's number. These functions return the number of a task, and the task of a number.
  [[nodiscard]] std::int64_t number(const Task& task) const;
  [[nodiscard]] Task task(std::int64_t number) const;

  // Each of the next functions that returns a bool counts one event, and returns whether it was the last one
  // of its kind. The simulation calls it when the event happens.

  // One of the rank's gates has opened.
  bool open_gate(int rank) { return --gates_[static_cast<std::size_t>(rank)] == 0; }
  // A rank of the task's group is ready for it, or the task of the chunk before has ended. If it was the last
  // such event, the task may begin.
  bool arrive(const Task& task) { return --needs_[static_cast<std::size_t>(number(task))] == 0; }
  // One of the task's transfers has ended. begin_transfers() says before how many there are.
  void begin_transfers(std::int64_t task, int count) { transfers_[static_cast<std::size_t>(task)] = count; }
  bool finish_transfer(std::int64_t task) { return --transfers_[static_cast<std::size_t>(task)] == 0; }
  // The rank has ended all stages of one chunk.
  bool finish_chunk(int rank) { return --left_[static_cast<std::size_t>(rank)] == 0; }
  // One rank has ended all chunks.
  bool finish_rank() { return --ranks_left_ == 0; }

 private:
  const Program& program_;
  std::vector<int> first_{0};      // number of each stage's first task in a chunk; at last: tasks of a chunk
  std::vector<int> needs_{};       // events that each task still waits for
  std::vector<int> transfers_{};   // each task's transfers that have not ended
  std::vector<int> gates_, left_;  // each rank's gates that are closed, and chunks that are not done
  int ranks_left_;
};

}  // namespace roundelay::model
