// A scene for the explorer: members that make one call after the other over one segment.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <vector>

#include "collective/fabric.h"
#include "collective/program/program.h"
#include "collective/shm/programs.h"
#include "collective/shm/rounds.h"
#include "tests/cpp/explore/explorer.h"

namespace roundelay::explore {

// One call of all members. Lengths are in elements of 4 bytes; 16 elements make a line.
struct Planned {
  Operation operation = Operation::kAllreduce;
  // Allreduce, broadcast: one length. All-gather: what each member gives. Reduce-scatter: each member's
  // shard. Alltoall: what each member gives to each, giver by giver. Absent members give and get nothing.
  std::vector<std::size_t> lengths;
  std::vector<int> absent = {};
  int root = 0;
  bool in_region = false;         // allreduce, all-gather, reduce-scatter
  ReduceOp op = ReduceOp::kSum;   // Adasum needs two members
  std::vector<int> in_heap = {};  // the members whose buffer lies in a heap; allreduce
};

struct Script {
  int members = 2;
  std::size_t slot_bytes = 128;
  std::vector<Planned> calls;
  // The program under test.
  collective::Program (*program)(const collective::Call&,
                                 collective::shm::Rounds&) = collective::shm::program_of;
  // Lets a member wait. Null: it polls.
  void (*sleep)(collective::shm::Rounds&, collective::shm::Doorbell& own) = nullptr;
};

class ChunkScene final : public Scene {
 public:
  explicit ChunkScene(Script script);

  [[nodiscard]] int members() const override { return script_.members; }
  void reset() override;
  [[nodiscard]] std::vector<ConstByteSpan> memory() const override;
  void run(int member) override;

 private:
  using Elements = std::vector<std::uint32_t>;
  struct Free {
    void operator()(std::byte* memory) const {
      ::operator delete (memory, std::align_val_t{collective::shm::Segment::kPageBytes});
    }
  };

  // The outputs, as the heap of a member. Those of the call's other members do not lie there.
  class Heap;

  [[nodiscard]] collective::shm::Segment segment() const {
    return {memory_.get(), script_.members, script_.slot_bytes};
  }
  [[nodiscard]] collective::Call call_of(std::size_t number, int member);
  [[nodiscard]] collective::Call kind_of(std::size_t number, int member);  // no member is absent
  void wait(collective::shm::Rounds& rounds, int member);
  void make(std::size_t number, collective::shm::History& history);

  const Script script_;
  const std::unique_ptr<std::byte, Free> memory_;
  std::vector<std::vector<Elements>> gives_, gets_;  // by call and member
  // The memory of the call that runs; by member.
  std::vector<Elements> inputs_, outputs_;
  std::vector<Region> regions_;
  std::vector<std::unique_ptr<collective::ScratchPool>> pools_;
  std::vector<ConstByteSpan> scratch_;
};

// Sleeps as the product does.
void nap(collective::shm::Rounds& rounds, collective::shm::Doorbell& own);

}  // namespace roundelay::explore
