// Chooses the algorithms of each group's fabric: by ROUNDELAY_ALGORITHM, and by rank 0's tuning file. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "base/group.h"
#include "base/status.h"
#include "bootstrap/topology.h"
#include "collective/tuning/select.h"
#include "collective/tuning/tuning.h"
#include "model/cluster.h"

namespace roundelay::runtime {

// Returns the name of the level that joins the members of a group: that of the smallest part that has all of
// them ("node", "rack" ...), or "cluster".
std::string level_of(const Group& group, const bootstrap::Topology& topology);

// Returns OK if a tuning was measured on such a cluster: over this fabric, with all levels of the topology,
// and with parts at least as large. Errors: kInvalidArgument with the differences and the cure.
Status check_fits(const collective::Tuning& tuning, const bootstrap::Topology& topology,
                  std::string_view fabric);

class AlgorithmChoice {
 public:
  AlgorithmChoice() = default;
  // `tuning_text`: rank 0's, as Tuning::parse() reads it; empty: there is none. `fabric`: the backend's. All
  // ranks call it with equal arguments. Errors: kInvalidArgument if the tuning cannot be used here.
  static Result<AlgorithmChoice> create(const Config& config, const std::string& tuning_text,
                                        const bootstrap::Topology& topology, std::string_view fabric);

  // Returns the rule for the algorithms of a group's fabric.
  [[nodiscard]] collective::Select select_for(const Group& group) const;
  // Returns the rule for calls on GPUs' memory: that of a level "gpu", if the tuning has one.
  [[nodiscard]] collective::Select on_device() const;
  // Returns the tuning; nothing if there is none.
  [[nodiscard]] const std::optional<collective::Tuning>& tuning() const { return tuning_; }
  // Returns the links of all levels, innermost first, as measured; empty: nothing was.
  [[nodiscard]] std::vector<model::Link> links() const;

 private:
  bootstrap::Topology topology_;
  std::optional<collective::Tuning> tuning_;
  collective::Select untuned_;
  std::map<std::string, collective::Select> by_level_;
};

}  // namespace roundelay::runtime
