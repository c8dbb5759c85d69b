// The configuration: init() reads it once into a typed value. ROUNDELAY_X takes precedence over HOROVOD_X.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

namespace roundelay {

// The value of every setting. knobs.cc describes each for users and says which must be equal on all ranks.
struct Config {
  // Fusion and negotiation
  std::int64_t fusion_threshold = 128 << 20;  // largest fused operation in bytes; 0 turns fusion off
  std::int64_t theta = 16 << 20;              // bytes of ready tensors that start an operation at once
  bool theta_auto = true;                     // measurements choose a pool's bucket sizes; theta does not
  bool gradient_pool = true;                  // DistributedOptimizer keeps gradients in buckets
  std::string strategy;                       // of optimizers that are given none; "": dense
  bool autotune = false;                      // the first steps try several bucket sizes
  std::string autotune_log;                   // file that records the sizes tried; "": none
  std::int64_t autotune_steps_per_sample = 10;
  Duration cycle_time = std::chrono::milliseconds(1);  // longest time a ready tensor waits for others
  std::int64_t cache_capacity = 1024;                  // names in the response cache; 0 turns it off
  bool schedule_lock = true;                           // repeating steps skip negotiation
  bool deterministic = false;    // fixes the fusion plan: sums do not depend on the order of arrival
  bool exact_gradients = false;  // gradients of the sum of all ranks' losses; false: Horovod's
  // Time limits
  bool stall_check_disable = false;
  Duration stall_check_time = std::chrono::seconds(60);
  Duration stall_shutdown_time{0};                       // 0: never
  bool stall_stacks = true;                              // a late rank reports its Python stack
  Duration progress_timeout = std::chrono::seconds(30);  // in addition to the transfer's own time
  Duration start_timeout = std::chrono::seconds(30);
  // Backends
  std::string bootstrap = "auto";   // auto | mpi | store | single
  std::string channel = "auto";     // auto | shm | tcp | mpi
  std::string fabric = "auto";      // auto | shm | mpi | c10d
  std::string gpu_fabric = "auto";  // auto | nccl | staged | two_level
  std::string node_id;              // names this rank's node; "": hostname and boot id
  std::string interface;            // network interfaces for TCP, comma separated; "": any
  // Output
  std::string timeline;  // a path, or DYNAMIC; "": no timeline
  bool timeline_mark_cycles = false;
  LogLevel log_level = LogLevel::kWarning;
  bool log_hide_time = false;

  // Returns a hash of the settings that must be equal on all ranks. Ranks compare it at init.
  [[nodiscard]] std::uint64_t hash() const;
};

// One setting as `roundelay.config` and the documentation show it.
struct ConfigLine {
  std::string variable;  // ROUNDELAY_X
  std::string value;
  std::string source;  // "default", "ROUNDELAY_X" or "HOROVOD_X"
  std::string meaning;
};

// Returns a variable's value; nothing if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& variable)>;

// A variable that is set to a bad value, or that no knob has.
struct BadVariable {
  std::string variable;  // its name as it is set: ROUNDELAY_X or HOROVOD_X
  std::string value;
  std::string allowed;    // describes the good values; empty if no knob has this variable
  std::string complaint;  // tells the user the variable, the value and what is allowed
};

struct LoadedConfig {
  Config config;
  std::vector<ConfigLine> lines;       // every knob, in the order of the table in knobs.cc
  std::vector<std::string> no_effect;  // a sentence for each HOROVOD_ variable that is set and does nothing
  std::vector<BadVariable> bad;        // they were read as if they were not set
};

// Reads all settings from `environment`; init() and roundelayrun call it. `set_variables` holds the names of
// all variables that are set, or nothing if the caller cannot list them; an unknown ROUNDELAY_ name among
// them is bad, too. Lists bad variables and reads on as if they were not set.
LoadedConfig read_config(const Environment& environment, const std::vector<std::string>& set_variables = {});

// Reads like read_config(). Errors: kInvalidArgument with the first bad variable's complaint.
Result<LoadedConfig> load_config(const Environment& environment,
                                 const std::vector<std::string>& set_variables = {});

}  // namespace roundelay
