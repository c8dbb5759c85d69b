// One bucket on its way: what each of its tasks still waits for. A task is one stage of one chunk in one
// group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/groups.h"
#include "model/stage.h"

namespace roundelay::model {

class BucketRun {
 public:
  struct Place {
    int chunk = 0, stage = 0, group = 0;
  };

  // `gates`: how many things each rank waits for before its first task.
  BucketRun(const Program& program, const Groups& groups, int gates);

  [[nodiscard]] const Program& program() const { return program_; }
  [[nodiscard]] const Stage& stage(const Place& place) const {
    return program_.stages[static_cast<std::size_t>(place.stage)];
  }
  [[nodiscard]] int stages() const { return static_cast<int>(program_.stages.size()); }
  [[nodiscard]] std::int64_t task(const Place& place) const;
  [[nodiscard]] Place place(std::int64_t task) const;

  // One of the things that the rank waited for is there. Returns whether it was the last one.
  bool open_gate(int rank) { return --gates_[static_cast<std::size_t>(rank)] == 0; }
  // One of the things that a task waited for is there. Returns whether the task may begin.
  bool arrive(const Place& place) { return --needs_[static_cast<std::size_t>(task(place))] == 0; }
  // The task begins that many transfers. finish_transfer() returns whether it was the last of them.
  void begin_transfers(std::int64_t task, int count) { transfers_[static_cast<std::size_t>(task)] = count; }
  bool finish_transfer(std::int64_t task) { return --transfers_[static_cast<std::size_t>(task)] == 0; }
  // The rank has a chunk. Returns whether it has all of the bucket.
  bool finish_chunk(int rank) { return --left_[static_cast<std::size_t>(rank)] == 0; }
  // A rank has all. Returns whether every rank has.
  bool finish_rank() { return --ranks_left_ == 0; }

 private:
  const Program& program_;
  std::vector<int> first_{0};  // task of each stage within a chunk; then the number of tasks of a chunk
  std::vector<int> needs_{};
  std::vector<int> transfers_{};
  std::vector<int> gates_, left_;  // of each rank
  int ranks_left_;
};

}  // namespace roundelay::model
