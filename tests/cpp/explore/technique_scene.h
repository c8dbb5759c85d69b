// A scene for the explorer: members that reduce a bucket by a technique, run after run, over one segment.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "base/region.h"
#include "collective/program/scratch.h"
#include "collective/shm/segment.h"
#include "compress/technique.h"
#include "tests/cpp/explore/explorer.h"

namespace roundelay::explore {

// One run of all members.
struct TechniqueRun {
  enum class Kind : unsigned char { kTechnique, kFlush, kDense };
  Kind kind = Kind::kTechnique;
  std::vector<int> absent = {};  // these have joined; the others reduce densely
};

struct TechniqueScript {
  compress::TechniquePtr technique;
  std::size_t count = 20;  // elements of the bucket, one parameter
  std::vector<TechniqueRun> runs;
  bool in_region = false;
  bool within_node = false;  // the members see that they are on one node
};

// Two members. Elements are small whole numbers in fp32, so that all sums are exact. Every member must get
// the same elements in a run, and after a flush all that has come must have been sent once.
class TechniqueScene final : public Scene {
 public:
  explicit TechniqueScene(TechniqueScript script);

  [[nodiscard]] int members() const override { return kMembers; }
  void reset() override;
  [[nodiscard]] std::vector<ConstByteSpan> memory() const override;
  [[nodiscard]] std::optional<Death> death() const override { return death_; }
  // From the next exploration on, this member dies. Results must be those of the explorations before.
  void let_die(Death death) { death_ = death; }
  void run(int member) override;

 private:
  static constexpr int kMembers = 2;
  static constexpr std::size_t kSlotBytes = 128;
  using Elements = std::vector<float>;
  class Worker;  // one member on its stack
  struct Free {
    void operator()(std::byte* memory) const {
      ::operator delete (memory, std::align_val_t{collective::shm::Segment::kPageBytes});
    }
  };
  // All that a member writes, but for its stack and the segment.
  struct Own {
    Elements elements, state, scratch;
    std::vector<double> came, got;  // sums over the runs
    Region region;
  };

  [[nodiscard]] collective::shm::Segment segment() const { return {memory_.get(), kMembers, kSlotBytes}; }
  void check(std::size_t run, int member);

  const TechniqueScript script_;
  const std::unique_ptr<std::byte, Free> memory_;
  std::optional<Death> death_;
  std::vector<Own> own_;                 // by member
  std::vector<Elements> first_results_;  // by run: those of the first order
};

}  // namespace roundelay::explore
