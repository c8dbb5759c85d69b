// The choice of a call's algorithm. It depends only on the operation, its bytes, the number of members, what
// the call asks for, ROUNDELAY_ALGORITHM and rank 0's tuning file, so that all members agree.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "collective/program/program.h"
#include "collective/tuning/tuning.h"

namespace roundelay::collective {

// The most members of a group in which all parts of an element come to one place and are added in the order
// of members, so that sums depend neither on the size nor on fusion. Larger groups would have too many
// partners.
inline constexpr int kOnePlaceMembers = 64;

// A rule by which calls get their algorithms.
class Select {
 public:
  // Chooses by the rows of base/algorithms.def.
  Select() = default;
  // Returns the rule that takes the algorithm of this name for all calls that it can carry out, and the
  // rows for the others. "auto": the rows for all calls. Errors: kInvalidArgument, with all names.
  static Result<Select> by_name(std::string_view name);
  // Returns this rule with the choices that a tuning has for one level in front of those rows. A
  // group takes those for the most members that it has. `keeps_sums`: operations that reduce ignore them, as
  // choices that differ by size make sums depend on fusion. Errors: kInvalidArgument if the tuning names an
  // algorithm that the operation does not have.
  [[nodiscard]] Result<Select> with(const Tuning& tuning, std::string_view level, bool keeps_sums) const;

  // Returns this rule for calls on a device. If neither a name nor a tuning decides, an allreduce takes
  // recursive doubling if it is small, and halving and doubling if it is not: both add in log2 P kernels.
  [[nodiscard]] Select on_device() const;

  // Returns the algorithm for a call as the present members see it (present.h); `size` is their number.
  const Algorithm& operator()(const Call& call, int size) const;

 private:
  struct Tuned {
    Operation operation{};
    int members = 0;
    std::size_t most_bytes = 0;
    const Algorithm* algorithm = nullptr;
  };
  // The rows for more members come first; those for equally many ascend in bytes.
  using TunedRows = std::vector<Tuned>;

  explicit Select(std::string_view forced) : forced_(forced) {}
  [[nodiscard]] const Algorithm* tuned(Operation operation, std::size_t bytes, int size) const;

  std::string_view forced_;                   // a name in static storage; "": none
  std::shared_ptr<const TunedRows> tuned_{};  // null: no tuning
};

}  // namespace roundelay::collective
