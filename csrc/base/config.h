// Configuration: read once, at init, into one typed value. ROUNDELAY_X wins over HOROVOD_X.
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

struct Config {
  // Fusion and negotiation
  std::int64_t fusion_threshold = 128 << 20;  // bytes a fused operation may have at most; 0: no fusion
  std::int64_t theta = 16 << 20;              // bytes of ready tensors that make an order at once
  bool theta_auto = true;                     // a pool's buckets are cut by measurement, not at theta
  bool gradient_pool = true;                  // DistributedOptimizer's gradients lie in buckets
  bool autotune = false;                      // try cuts of the pool in the first steps
  std::string autotune_log;                   // "": none; a file for what was tried
  std::int64_t autotune_steps_per_sample = 10;
  Duration cycle_time = std::chrono::milliseconds(1);  // the longest linger
  std::int64_t cache_capacity = 1024;                  // names in the response cache; 0: off
  bool schedule_lock = true;                           // steps that repeat need no negotiation
  bool deterministic = false;                          // pin the fusion plan: sums do not depend on arrival
  bool exact_gradients = false;                        // of what gathers and broadcasts, or Horovod's
  // The two clocks
  bool stall_check_disable = false;
  Duration stall_check_time = std::chrono::seconds(60);
  Duration stall_shutdown_time{0};                       // 0: never
  bool stall_stacks = true;                              // a late rank says where its Python is
  Duration progress_timeout = std::chrono::seconds(30);  // plus bytes over a slow link's rate
  Duration start_timeout = std::chrono::seconds(30);
  // What is used
  std::string bootstrap = "auto";   // auto | mpi | store | single
  std::string channel = "auto";     // auto | shm | tcp | mpi
  std::string fabric = "auto";      // auto | shm | mpi | c10d
  std::string gpu_fabric = "auto";  // auto | nccl | staged | two_level
  std::string node_id;              // "": hostname and boot id
  std::string interface;            // "": any; network interfaces for tcp, comma separated
  // What is shown
  std::string timeline;  // "": off, a path, or DYNAMIC
  bool timeline_mark_cycles = false;
  LogLevel log_level = LogLevel::kWarning;
  bool log_hide_time = false;

  // Of what must be equal on all ranks.
  [[nodiscard]] std::uint64_t hash() const;
};

// One line of `roundelay.config`: for people and docs.
struct ConfigLine {
  std::string variable;  // ROUNDELAY_X
  std::string value;
  std::string source;  // "default", "ROUNDELAY_X" or "HOROVOD_X"
  std::string meaning;
};

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
  std::vector<ConfigLine> lines;  // every knob, in the order of the struct
  std::vector<std::string>
      no_effect;                 // HOROVOD_ variables that are set but have no counterpart, with the reason
  std::vector<BadVariable> bad;  // were read as if they were not set
};

// Reads every knob. Lists bad variables and reads on as if they were not set. `set_variables`: the names of
// all variables that are set, where they can be listed; an unknown ROUNDELAY_ name among them is bad, too.
LoadedConfig read_config(const Environment& environment, const std::vector<std::string>& set_variables = {});

// Like read_config(). Errors: kInvalidArgument with the first bad variable's complaint.
Result<LoadedConfig> load_config(const Environment& environment,
                                 const std::vector<std::string>& set_variables = {});

}  // namespace roundelay
