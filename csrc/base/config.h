// The configuration: init() reads it once into a typed value. ROUNDELAY_X takes precedence over HOROVOD_X.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/factors.h"
#include "base/level_counts.h"
#include "base/log.h"
#include "base/status.h"

namespace roundelay {

// A number, or "auto": then the reader of the setting chooses, and `number` is the value to begin with.
struct AutoInteger {
  std::int64_t number = 0;
  bool automatic = true;
};

// The value of every setting (knob): one member for each entry of knobs.def, which describes it.
struct Config {
#define KNOB(type, member, fallback, ...) type member = fallback;
#include "base/knobs.def"
#undef KNOB

  // Returns the settings that must be equal on all ranks, each as ROUNDELAY_X="value", without those that
  // have their default. Ranks compare them at init. A long value ends early, with its hash.
  [[nodiscard]] std::vector<std::string> shared_settings() const;
};

// Compares the shared_settings() of two ranks. Returns those that differ, joined by " and ", as each has
// them.
std::pair<std::string, std::string> different_settings(const std::vector<std::string>& a,
                                                       const std::vector<std::string>& b);

// One setting as `roundelay.config` and the documentation show it.
struct ConfigLine {
  std::string variable;  // ROUNDELAY_X
  std::string value;
  std::string source;  // "default", "ROUNDELAY_X" or "HOROVOD_X"
  std::string meaning;
};

// Returns a variable's value; nothing if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& variable)>;

// A variable that is set to a bad value, or that belongs to no knob.
struct BadVariable {
  std::string variable;  // its name as it is set: ROUNDELAY_X or HOROVOD_X
  std::string value;
  std::string allowed;    // describes the good values; empty if no knob has this variable
  std::string complaint;  // tells the user the variable, the value and what is allowed
};

struct LoadedConfig {
  Config config;
  std::vector<ConfigLine> lines;       // every knob, in the order of knobs.def
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
